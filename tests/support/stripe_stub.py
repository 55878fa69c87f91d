"""A payment processor to test against: Stripe's wire format, customers and cards, money that is counted.

It honours idempotency keys, which no other stand-in does, and loses requests or answers when told to. Does not import
the product.
"""

# length: one processor, whose books, answers and page are one thing

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import parse_qsl, urlsplit

PRO_PRICE, SECRET = "price_pro", "whsec_of_the_tests"
MONTH = 30 * 86_400
Found = dict[str, Any]


class Problem(Exception):
    """A refusal: status, and the members of `error`."""

    def __init__(self, status: int, **error: Any) -> None:
        super().__init__(error)
        self.status, self.error = status, error


class StripeStub:
    """The processor's books. `asked` lists the requests it got, `fields` what each said, `faults` the next failures."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.reset()

    def reset(self) -> None:
        """Begin with empty books."""
        with self.lock:
            self.things: dict[str, Found] = {}
            self.keys: dict[str, tuple[int, Any]] = {}
            self.asked: list[tuple[str, str]] = []
            self.fields: list[Found] = []
            self.faults: list[tuple[str, str]] = []
            self._numbers = count(1)

    # --- what a test says -------------------------------------------------------------------------------------------

    def make_card(self, kind: str = "good", customer: str | None = None, number: str = "4242") -> str:
        """Return a card that the browser's form took: `good`, `declined`, or `asks` for its holder."""
        card = {"brand": "visa", "last4": number, "exp_month": 12, "exp_year": 2030}
        return self._add("pm", "payment_method", type="card", card=card, customer=customer, kind=kind)["id"]

    def lose(self, path: str, what: str) -> None:
        """Lose the next request (`request`) or its answer (`answer`) of a path, the library's own retry included."""
        self.faults += [(path, what), (path, what)]

    def of_kind(self, kind: str) -> list[Found]:
        """Return all things of a kind, oldest first."""
        return [thing for thing in self.things.values() if thing["object"] == kind]

    def paid(self) -> list[int]:
        """Return the cents of every charge that was made."""
        return [one["amount"] for one in self.of_kind("payment_intent") if one["status"] == "succeeded"]

    def confirm(self, payment_id: str) -> str:
        """Let a card's holder confirm; return where the bank's page leads."""
        payment = self._succeed(self.things[payment_id])
        return str(payment.pop("next_action", {}).get("redirect_to_url", {}).get("return_url", ""))

    def renew(self, subscription_id: str, *, paid: bool = True) -> Found:
        """Let a month pass."""
        subscription = self.things[subscription_id]
        item = subscription["items"]["data"][0]
        item["current_period_end"] += MONTH
        subscription["status"] = "active" if paid else "past_due"
        return self._invoice(subscription, paid=paid)

    def event(self, type_: str, about: Found, event_id: str = "", **changed: Any) -> tuple[bytes, str]:
        """Return a message about a thing, and its signature."""
        event = {"id": event_id or f"evt_{next(self._numbers)}", "object": "event", "type": type_}
        body = json.dumps({**event, "data": {"object": {**about, **changed}}}).encode()
        return body, sign(body)

    # --- what the product asks ----------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, fields: Found, key: str | None) -> tuple[int, Any]:
        """Answer a request; one that moves money and comes again under its key is answered as before."""
        said = json.dumps([method, path, fields], sort_keys=True)
        if key and key in self.keys:
            status, (before, answer) = self.keys[key]
            if before != said:
                return 400, {"error": {"type": "idempotency_error", "message": "Another request had this key"}}
            return status, answer
        try:
            status, answer = 200, self._route(method, path, fields)
        except Problem as problem:
            status, answer = problem.status, {"error": {"type": "invalid_request_error", **problem.error}}
        if key:
            self.keys[key] = (status, (said, answer))
        return status, answer

    def _route(self, method: str, path: str, fields: Found) -> Any:
        for verb, pattern, act in self._routes():
            match = re.fullmatch(pattern, path)
            if match and verb == method:
                return act(fields, *map(self._get, match.groups()))
        raise Problem(404, message=f"Unrecognized request URL ({method}: {path})")

    def _routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        one = r"/([a-z]+_\w+)"
        return [
            ("POST", "/v1/customers", lambda fields: self._add("cus", "customer", **fields)),
            ("POST", f"/v1/customers{one}", lambda fields, thing: {**thing, **(thing.update(fields) or {})}),
            ("DELETE", f"/v1/customers{one}", lambda _, thing: self._delete_customer(thing)),
            ("POST", "/v1/setup_intents", self._set_up),
            ("POST", "/v1/checkout/sessions", self._open_page),
            ("GET", f"/v1/checkout/sessions{one}", lambda _, thing: thing),
            ("GET", f"/v1/payment_methods{one}", lambda _, thing: thing),
            ("POST", f"/v1/payment_methods{one}/attach", self._attach),
            ("POST", f"/v1/payment_methods{one}/detach", lambda _, thing: thing.update(customer=None) or thing),
            ("POST", "/v1/payment_intents", self._pay),
            ("GET", "/v1/payment_intents", lambda fields: self._list("payment_intent", fields, "customer")),
            ("GET", f"/v1/payment_intents{one}", lambda _, thing: thing),
            ("POST", f"/v1/payment_intents{one}/confirm", self._open_confirmation),
            ("POST", f"/v1/payment_intents{one}/cancel", self._cancel),
            ("POST", "/v1/refunds", self._refund),
            ("GET", "/v1/refunds", lambda fields: self._list("refund", fields, "payment_intent")),
            ("POST", "/v1/subscriptions", self._subscribe),
            ("GET", "/v1/subscriptions", lambda fields: self._list("subscription", fields, "customer")),
            ("GET", f"/v1/subscriptions{one}", lambda _, thing: thing),
            ("POST", f"/v1/subscriptions{one}", self._change_subscription),
            ("DELETE", f"/v1/subscriptions{one}", lambda _, thing: thing.update(status="canceled") or thing),
            ("GET", "/v1/invoices", lambda fields: self._list("invoice", fields, "subscription")),
        ]

    def _get(self, identifier: str) -> Found:
        if identifier not in self.things:
            raise Problem(404, code="resource_missing", message=f"No such thing: '{identifier}'")
        return self.things[identifier]

    def _add(self, prefix: str, kind: str, /, **fields: Any) -> Found:
        identifier = f"{prefix}_{next(self._numbers)}"
        self.things[identifier] = {"id": identifier, "object": kind, "created": int(time.time()), **fields}
        return self.things[identifier]

    def _list(self, kind: str, fields: Found, by: str) -> Found:
        found = [one for one in reversed(self.of_kind(kind)) if one[by] == fields[by]]
        return {"object": "list", "data": found, "has_more": False, "url": "/"}

    def _delete_customer(self, customer: Found) -> Found:
        for thing in self.things.values():
            if thing.get("customer") == customer["id"] and thing["object"] == "subscription":
                thing["status"] = "canceled"
        del self.things[customer["id"]]
        return {"id": customer["id"], "object": "customer", "deleted": True}

    def _set_up(self, fields: Found) -> Found:
        return self._add("seti", "setup_intent", client_secret=f"seti_secret_{next(self._numbers)}", **fields)

    def _open_page(self, fields: Found) -> Found:
        page = self._add("cs", "checkout.session", **fields, setup_intent=None)
        page["url"] = f"{self.address}/pay/{page['id']}"
        return page

    def enter_card(self, page_id: str, kind: str = "good") -> str:
        """Enter a card as a customer on the processor's own page; return where that leads."""
        page = self.things[page_id]
        page["setup_intent"] = {"payment_method": self.make_card(kind, page["customer"])}
        return str(page["success_url"]).replace("{CHECKOUT_SESSION_ID}", page_id)

    def _attach(self, fields: Found, card: Found) -> Found:
        self._get(fields["customer"])
        card["customer"] = fields["customer"]
        return card

    def _pay(self, fields: Found) -> Found:
        card = self._get(fields["payment_method"])
        if card["customer"] != fields["customer"]:
            raise Problem(400, message="The PaymentMethod does not belong to this customer")
        if card["kind"] == "asks" and fields.get("off_session"):
            raise Problem(402, type="card_error", code="authentication_required", message="Your holder is needed.")
        made = self._add("pi", "payment_intent", **{**fields, "amount": int(fields["amount"])}, status="new")
        made["client_secret"] = f"{made['id']}_secret"
        if card["kind"] == "declined":
            made["status"] = "requires_payment_method"
            made["last_payment_error"] = {"message": "Your card was declined."}
            raise Problem(
                402,
                type="card_error",
                code="card_declined",
                decline_code="insufficient_funds",
                message="Your card has insufficient funds.",
            )
        if card["kind"] == "asks":
            made["status"] = "requires_action"
            return made
        return self._succeed(made)

    def _succeed(self, payment: Found) -> Found:
        payment.update(status="succeeded", amount_received=payment["amount"])
        return payment

    def _open_confirmation(self, fields: Found, payment: Found) -> Found:
        if payment["status"] != "requires_action":
            raise Problem(400, code="payment_intent_unexpected_state", message="It cannot be confirmed")
        page = {"url": f"{self.address}/bank/{payment['id']}", "return_url": fields["return_url"]}
        payment["next_action"] = {"type": "redirect_to_url", "redirect_to_url": page}
        return payment

    def _cancel(self, _: Found, payment: Found) -> Found:
        if payment["status"] in ("succeeded", "canceled"):
            raise Problem(400, code="payment_intent_unexpected_state", message="It cannot be canceled")
        payment["status"] = "canceled"
        return payment

    def _refund(self, fields: Found) -> Found:
        payment, amount = self._get(fields["payment_intent"]), int(fields["amount"])
        before = sum(one["amount"] for one in self.of_kind("refund") if one["payment_intent"] == payment["id"])
        if before + amount > payment["amount"]:
            raise Problem(400, code="charge_already_refunded", message="More than was paid")
        fields = {**fields, "amount": amount}
        return self._add("re", "refund", status="succeeded", currency=payment["currency"], **fields)

    def _subscribe(self, fields: Found) -> Found:
        customer = self._get(fields["customer"])
        card = self._get(customer["invoice_settings"]["default_payment_method"])
        if card["kind"] != "good":
            raise Problem(402, type="card_error", code="card_declined", message="Your card was declined.")
        item = {"current_period_end": int(time.time()) + MONTH, "price": {"id": fields["items"]["0"]["price"]}}
        made = {**fields, "items": {"object": "list", "data": [item]}, "cancel_at_period_end": False}
        subscription = self._add("sub", "subscription", **made, status="active")
        self._invoice(subscription)
        return subscription

    def _invoice(self, subscription: Found, *, paid: bool = True) -> Found:
        status, amount = ("paid", 4900) if paid else ("open", 0)
        names = {"customer": subscription["customer"], "subscription": subscription["id"]}
        return self._add("in", "invoice", **names, status=status, amount_paid=amount, currency="usd")

    def _change_subscription(self, fields: Found, subscription: Found) -> Found:
        subscription["cancel_at_period_end"] = fields["cancel_at_period_end"] == "true"
        return subscription


def sign(body: bytes, secret: str = SECRET, at: float | None = None) -> str:
    """Return the header with which the processor signs a message."""
    moment = int(time.time() if at is None else at)
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def _fields_of(text: str) -> Found:
    """Return `a[b][0]=c` as nested values."""
    fields: Found = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        *path, last = re.findall(r"[^\[\]]+", name)
        place = fields
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return fields


def _handler_of(stub: StripeStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave together: apart, the second would wait for the first's acknowledgement.
        wbufsize = 65_536

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            _, place, name = (address.path + "//").split("/")[:3]
            if place not in ("pay", "bank"):
                self._serve(address.query)
                return
            # The processor's own page: opening it enters a card; and the bank's: opening it confirms.
            self.send_response(303)
            self.send_header("Location", stub.enter_card(name) if place == "pay" else stub.confirm(name))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

        def do_DELETE(self) -> None:
            self.do_POST()

        def _serve(self, text: str) -> None:
            path = urlsplit(self.path).path
            with stub.lock:
                fault = next((one for one in stub.faults if re.fullmatch(one[0], path)), None)
                if fault:
                    stub.faults.remove(fault)
                if fault and fault[1] == "request":
                    self.close_connection = True
                    return
                fields = _fields_of(text)
                stub.asked.append((self.command, path))
                stub.fields.append(fields)
                status, answer = stub.answer(self.command, path, fields, self.headers.get("Idempotency-Key"))
                body = json.dumps(answer).encode()
            if fault:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
