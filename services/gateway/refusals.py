"""Refusals that the gateway itself decides on, beside the domain's (domain/errors.py)."""

from domain.errors import Conflict, Invalid, Rejection


class Unauthenticated(Rejection):
    """Nobody we know: no credential, or one that is void, expired or wrong; which of these is not told."""

    code = "unauthenticated"
    sentence = "A valid bearer token is needed."


class Forbidden(Rejection):
    """Somebody we know, who may not do this."""

    code = "forbidden"
    sentence = "This credential does not allow that."


class UserNeeded(Forbidden):
    code = "user_needed"
    sentence = "A session token opens its one session only; this needs a user's token."


class HostRefused(Forbidden):
    code = "host_refused"
    sentence = "Without authentication only requests to a loopback host are answered."


class OriginRefused(Forbidden):
    code = "origin_refused"
    sentence = "Without authentication only pages of this host may send requests."


class SessionGone(Rejection):
    code = "session_gone"
    sentence = "The session with this external id was deleted; the id is never used again."


class ExternalIdTaken(Conflict):
    code = "external_id_taken"
    sentence = "The session {session_id} has this external id and was created by another request."


class InvalidRequest(Invalid):
    """`errors`: [{pointer, message}], pointers into the body (RFC 6901)."""

    code = "invalid_request"
    sentence = "The request does not have the documented shape."


class BadListCursor(Invalid):
    code = "bad_cursor"
    sentence = "The cursor is not one that a list has returned."
