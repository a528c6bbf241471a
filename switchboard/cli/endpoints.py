"""`endpoint vend | list | rotate | revoke`: each makes one request and returns the text to print."""

from __future__ import annotations

import json
import shlex

from switchboard.cli import output
from switchboard.cli.arguments import Arguments
from switchboard.cli.client import Answer, OperatorClient
from switchboard.cli.grammar import PROGRAM
from switchboard.cli.replies import Endpoint, EndpointList, Revoked, Vended


def vend(args: Arguments, client: OperatorClient) -> str:
    """Makes an endpoint. Its credential is in the text that is returned, and nowhere else."""
    body: dict[str, object] = {"name": args.name}
    if args.queues:
        body["queues"] = args.queues
    answer = client.post("/endpoints", json.dumps(body))
    return _credential(args, answer, client.house.url, happened="is vended")


def rotate(args: Arguments, client: OperatorClient) -> str:
    """Gives an endpoint another credential; the old one is refused from now on."""
    answer = client.post(f"/endpoints/{args.name}/rotate")
    return _credential(args, answer, client.house.url, happened="has a new credential, and the old one is refused")


def revoke(args: Arguments, client: OperatorClient) -> str:
    """Ends an endpoint. The count is the reply's: stragglers are swept after it (R17)."""
    answer = client.post(f"/endpoints/{args.name}/revoke")
    if args.as_json:
        return output.json_text(answer.text)
    revoked = answer.read(Revoked)
    swept = f"{revoked.dead_lettered} open todo{'' if revoked.dead_lettered == 1 else 's'} dead-lettered so far"
    return f"Endpoint {revoked.endpoint.name} is revoked: its credential is refused, {swept}.\n"


def list_all(args: Arguments, client: OperatorClient) -> str:
    """Every endpoint there ever was, in the order in which the house tells them."""
    answer = client.get("/endpoints")
    if args.as_json:
        return output.json_text(answer.text)
    endpoints = answer.read(EndpointList).endpoints
    if not endpoints:
        return f"There is no endpoint yet: `{PROGRAM} endpoint vend NAME` makes one.\n"
    rows = [
        (
            endpoint.name,
            "live" if endpoint.revoked_at is None else f"revoked {output.moment(endpoint.revoked_at, answer.now)}",
            output.moment(endpoint.created_at, answer.now),
            _queues(endpoint),
            endpoint.id,
        )
        for endpoint in endpoints
    ]
    return output.table(("NAME", "STATE", "VENDED", "QUEUES", "ID"), rows)


def names_by_id(client: OperatorClient) -> dict[str, str]:
    """What each endpoint is called, for a listing of todos, which know their endpoint by its id."""
    return {endpoint.id: endpoint.name for endpoint in client.get("/endpoints").read(EndpointList).endpoints}


def _credential(args: Arguments, answer: Answer, url: str, *, happened: str) -> str:
    vended = answer.read(Vended)
    endpoint = vended.endpoint
    if args.as_json:
        shape = {"name": endpoint.name, "id": endpoint.id, "credential": vended.credential}
        return output.json_text(json.dumps(shape))
    claim = shlex.join(["curl", "-sS", f"{url}/v1/claims", "-H", f"Authorization: Bearer {vended.credential}"])
    return (
        f"Endpoint {endpoint.name} {happened}. Queues: {_queues(endpoint)}.\n\n"
        f"  credential: {vended.credential}\n\n"
        f"It is shown only this once: keep it now. If it is lost, `{PROGRAM} endpoint rotate {endpoint.name}` makes another.\n"
        f"An agent claims the next todo with it:\n\n"
        f"  {claim} -H 'Content-Type: application/json' -d '{{}}'\n"
    )


def _queues(endpoint: Endpoint) -> str:
    return "all" if endpoint.queues is None else output.cell(", ".join(endpoint.queues))
