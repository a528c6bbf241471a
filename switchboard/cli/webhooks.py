"""`webhook create | list | rotate | delete | route`: each makes one request and returns the text to print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from switchboard.cli import output
from switchboard.cli.arguments import Arguments
from switchboard.cli.client import OperatorClient
from switchboard.cli.failures import UsageError
from switchboard.cli.replies import Webhook, WebhookList, WebhookReply, WebhookSecrets

SECRET_BYTES_MAX: Final = 4_096


def create(args: Arguments, client: OperatorClient) -> str:
    """Makes a webhook and prints its address and its secrets: nobody can read them again."""
    body: dict[str, object] = {"name": args.name, "scheme": args.scheme, "endpoints": args.endpoints, "queue": args.queue}
    body |= _given_secrets(args)
    optional = {"header": args.header, "algorithm": args.algorithm, "encoding": args.encoding}
    body |= {name: value for name, value in optional.items() if value is not None}
    answer = client.post("/webhooks", json.dumps(body))
    if args.as_json:
        return output.json_text(answer.text)
    made = answer.read(WebhookSecrets)
    hook = made.webhook
    return (
        f"Webhook {hook.name} takes {hook.scheme} deliveries for {', '.join(hook.endpoints)}, "
        f"queue {output.cell(hook.queue)}.{_told(hook)}\n\n"
        f"{_shown_once(made, client)}"
    )


def list_all(args: Arguments, client: OperatorClient) -> str:
    """Every webhook, by name."""
    answer = client.get("/webhooks")
    if args.as_json:
        return output.json_text(answer.text)
    hooks = answer.read(WebhookList).webhooks
    if not hooks:
        return "There is no webhook yet: `webhook create --help` says how to make one.\n"
    rows = [
        (
            hook.name,
            hook.scheme,
            output.cell(hook.queue),
            ", ".join([*hook.endpoints, *(f"{name} (revoked)" for name in hook.revoked_endpoints)]) or "nobody",
            str(hook.secrets),
            output.moment(hook.created_at, answer.now),
        )
        for hook in hooks
    ]
    return output.table(("NAME", "SCHEME", "QUEUE", "ENDPOINTS", "SECRETS", "MADE"), rows)


def rotate(args: Arguments, client: OperatorClient) -> str:
    """A new secret, the newest old one staying good; or a new address."""
    body = _given_secrets(args) | ({"path": True} if args.path else {})
    answer = client.post(f"/webhooks/{args.name}/rotate", json.dumps(body))
    if args.as_json:
        return output.json_text(answer.text)
    rotated = answer.read(WebhookSecrets)
    kept = (
        "its old address is unknown from now on"
        if rotated.path is not None
        else f"{rotated.webhook.secrets} secrets are good; the next rotation ends the oldest"
    )
    return f"Webhook {rotated.webhook.name} is rotated: {kept}.\n\n{_shown_once(rotated, client)}"


def delete(args: Arguments, client: OperatorClient) -> str:
    """Ends a webhook."""
    answer = client.delete(f"/webhooks/{args.name}")
    if args.as_json:
        return output.json_text(answer.text)
    return f"Webhook {answer.read(WebhookReply).webhook.name} is deleted; its events and todos stay.\n"


def route(args: Arguments, client: OperatorClient) -> str:
    """One more endpoint, or one less."""
    routes = f"/webhooks/{args.name}/routes"
    if args.remove:
        answer = client.delete(f"{routes}/{args.endpoint}")
    else:
        answer = client.post(routes, json.dumps({"endpoint": args.endpoint}))
    if args.as_json:
        return output.json_text(answer.text)
    hook = answer.read(WebhookReply).webhook
    to = ", ".join(hook.endpoints) or "nobody: its deliveries are answered 503 until it has a route"
    return f"Webhook {hook.name} goes to {to}.\n"


def _told(hook: Webhook) -> str:
    if hook.header is None:
        return ""
    return f" It wants {hook.algorithm} in {hook.encoding} in the header {hook.header}."


def _shown_once(made: WebhookSecrets, client: OperatorClient) -> str:
    lines = []
    if made.path is not None:
        lines.append(f"  address  {client.house.url}{made.path}\n")
    lines += [f"  secret   {secret}\n" for secret in made.secrets]
    return "".join(lines) + "\nIt is shown only this once: keep it now.\n"


def _given_secrets(args: Arguments) -> dict[str, object]:
    return {"secrets": [_secret(word) for word in args.secrets]} if args.secrets else {}


def _secret(word: str) -> str:
    """The secret in the file after `@`, or on standard input for `-`: others can see the words of a command."""
    try:
        if word == "-":
            raw = sys.stdin.buffer.read(SECRET_BYTES_MAX + 1)
        elif word.startswith("@"):
            with Path(word[1:]).open("rb") as file:
                raw = file.read(SECRET_BYTES_MAX + 1)
        else:
            raise UsageError("--secret takes @FILE, or - for standard input: others on this machine can see a command's words.")
    except OSError as exc:
        raise UsageError(f"The secret could not be read from {word[1:]}: {exc.strerror}.") from exc
    if len(raw) > SECRET_BYTES_MAX:
        raise UsageError(f"A secret is at most {SECRET_BYTES_MAX} bytes.")
    try:
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise UsageError("The secret is not UTF-8.") from None
