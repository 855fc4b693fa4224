"""All attacks: what is done, and how it has to end. `docs/security.md` shows this table."""

from dataclasses import dataclass

CLOSED = "connection refused"
"""No call comes about: the TLS handshake, or the connection, ends before."""

DENIED = "PERMISSION_DENIED IdentityError"
UNFIT = "INVALID_ARGUMENT DataError"
UNREADABLE = "INVALID_ARGUMENT ContractError"
TOO_LARGE = "RESOURCE_EXHAUSTED"
TOO_MUCH = "RESOURCE_EXHAUSTED LimitExceeded"


@dataclass(frozen=True)
class Attack:
    """What somebody does, and the status with which it ends, or what else comes of it."""

    does: str
    expected: str


ATTACKS: dict[str, Attack] = {
    # Who is at the door: at all three doors, of a coordinator, of peers and of predictions.
    "no certificate": Attack("shows no certificate", CLOSED),
    "plaintext": Attack("speaks HTTP/2 without TLS", CLOSED),
    "TLS 1.2": Attack("has a good certificate, and speaks TLS 1.2", CLOSED),
    "TLS 1.2 by openssl": Attack("runs `openssl s_client -tls1_2`", CLOSED),
    "foreign authority": Attack("has the name of a member from an authority of its own", CLOSED),
    "expired certificate": Attack("shows a member's certificate of three days ago", CLOSED),
    "certificate of tomorrow": Attack("shows a certificate that is not valid yet", CLOSED),
    "no name": Attack("shows a certificate without a SPIFFE id", DENIED),
    "two names": Attack("shows a certificate with two SPIFFE ids", DENIED),
    "another federation": Attack("is of another federation under the same authority", DENIED),
    "B's authority signs A": Attack(
        "telco's authority, which claims to be for all, signs bank's name", DENIED
    ),
    "B's limited authority signs A": Attack(
        "shop's authority, limited to shop, signs bank's name", CLOSED
    ),
    "B's limited authority signs A's id": Attack(
        "shop's authority signs bank's SPIFFE id, without the DNS name", DENIED
    ),
    "another server": Attack("answers at bank's address with telco's certificate", CLOSED),
    # Who may do what.
    "B claims to be A at the coordinator": Attack(
        "shop registers, and speaks, in the name of bank", DENIED
    ),
    "B claims to be A at a peer": Attack(
        "shop asks, and sends frames, in the name of telco", DENIED
    ),
    "not on the roster": Attack(
        "the museum has a good certificate, and is not on the roster: it asks for the status, "
        "and for representations",
        DENIED,
    ),
    "not on the roster, registers": Attack(
        "the museum registers", "FAILED_PRECONDITION MismatchError"
    ),
    "coordinator wants representations": Attack(
        "the coordinator's certificate calls Represent, Exchange and HandOn", DENIED
    ),
    "another's application": Attack("shop's application asks bank for predictions", DENIED),
    "coordinator lowers protection": Attack(
        "the coordinator comes back with gradients unmasked, hmac, more epochs, fewer bits on "
        "the wire, or a client of its own on the roster, against what bank requires, and asks for "
        "a run",
        "exit code 6, no id submitted",
    ),
    "coordinator's terms are none": Attack(
        "the coordinator answers registrations with settings and rosters that cannot be, and then "
        "with other frame sizes each time, as fast as it can",
        "the port answers, the model is served",
    ),
    "coordinator publishes": Attack(
        "the coordinator says that a model is live, and its run finished, which bank holds back "
        "(`publish: hold`)",
        "the old model is served",
    ),
    "one run too many": Attack(
        "the coordinator asks for one more run than bank's `max_epsilon` allows",
        "no id blinded",
    ),
    "made-up ids are aligned": Attack(
        "bank's application asks for predictions of 10,000 ids that it makes up, with features",
        "no alignment",
    ),
    "asks who is erased": Attack(
        "an application asks for somebody who is erased and for a stranger, with features and "
        "without, and a peer asks for both",
        "the same answers",
    ),
    "reads farewells": Attack(
        "the coordinator and the other members keep what a client says when it fails",
        "a code and a general sentence",
    ),
    # What is in a message.
    "oversize message": Attack("sends 5 MB where far less is expected, at all ports", TOO_LARGE),
    "gzip bomb": Attack("sends 260 kB that unpack to 256 MB, at all ports", TOO_LARGE),
    "many tiny parts": Attack(
        "a member sends a heartbeat of 350,000 empty links, and a frame of 500,000 empty frames: a "
        "megabyte that is slow to parse, and a hundred once it is",
        UNREADABLE,
    ),
    "shape overflow": Attack("sends features of shape (2^31, 2^31)", UNFIT),
    "wrong dtype": Attack("sends features in float16, and in a type that does not exist", UNFIT),
    "short data": Attack("sends fewer bytes than the shape says", UNFIT),
    "NaN": Attack("sends features that are NaN", UNFIT),
    "Inf": Attack("sends features that are infinite", UNFIT),
    "1e30": Attack("sends features of 1e30", "a finite prediction"),
    "random bytes": Attack("sends bytes that are no message to every call", UNREADABLE),
    "made-up messages, member": Attack(
        "a member sends messages with extreme values in all fields to every call",
        "no INTERNAL, no UNKNOWN",
    ),
    "made-up messages, outsider": Attack("somebody of another federation sends the same", DENIED),
    "another's call": Attack("every party makes every call that it may not", DENIED),
    # Too many, too long, too slow.
    "silent connections": Attack(
        "opens 500 connections that say nothing, with and without a TLS handshake",
        "predictions go on",
    ),
    "endless questions": Attack("a member asks for representations without end", TOO_MUCH),
    "flood of large requests": Attack(
        "bank's application sends 30 requests at once, each of 10,000 ids and 150 categorical "
        "columns, which took 3.5 GB",
        "less than 1 GB, and others are answered",
    ),
    "endless points": Attack("a member hands on points without end", UNREADABLE),
    "endless ids": Attack(
        "a member submits ids without end, and was not called to", "NOT_FOUND NotRegistered"
    ),
    "trickle": Attack(
        "a member begins every call that takes a stream, and sends a byte a second",
        UNREADABLE,
    ),
    "half a message": Attack(
        "somebody of another federation begins every call, and never finishes its message", DENIED
    ),
    "too many calls": Attack("a member makes 100 calls at the same time", TOO_MUCH),
    "registers without end": Attack(
        "a member registers again and again, each time as another process; the others are answered "
        "within a second",
        TOO_MUCH,
    ),
    "sessions without end": Attack(
        "a member opens its session again and again; the others are answered within a second",
        TOO_MUCH,
    ),
    "status without end": Attack(
        "a member asks for the status again and again; the others are answered within a second",
        TOO_MUCH,
    ),
    "brings too many": Attack(
        "a member commits to more people than the coordinator has room for (`max_total_people`)",
        UNREADABLE,
    ),
    "aligns and leaves": Attack(
        "a member takes part in the alignment of each run, and leaves before its first step",
        "no scalar of a failed run stays",
    ),
    "address on the peers' machine": Attack(
        "a member advertises the port of a program on the loopback of whoever dials it",
        "not dialled",
    ),
    # Tokens, where they take the place of certificates.
    "right token": Attack("an application shows its token", "OK"),
    "wrong token": Attack("shows another token", DENIED),
    "no token": Attack("shows no token", DENIED),
    "expired token": Attack("shows a token that has ended", DENIED),
    "hash of a token": Attack("shows the hash that the file has in place of a token", DENIED),
    "token in plaintext": Attack("shows the right token without TLS", CLOSED),
    # Files.
    "pickle as a model": Attack(
        "puts a pickle in place of model.safetensors, and its digest in the manifest", "exit code 3"
    ),
    "truncated model": Attack("cuts model.safetensors short", "exit code 3"),
    "planted hubconf": Attack(
        "writes a `hubconf.py`, and has the manifest of a built-in model load it by "
        "`torch.hub:load`",
        "exit code 3",
    ),
    "own model changed": Attack(
        "has the manifest name another model of one's own than the configuration", "exit code 3"
    ),
    "own model's options changed": Attack(
        "has the manifest name the configuration's own model, with other options", "exit code 3"
    ),
    "pickle as a checkpoint": Attack(
        "puts a pickle in place of a checkpoint, and its digest in the note",
        "an older checkpoint is used",
    ),
    "truncated checkpoint": Attack("cuts a checkpoint short", "an older checkpoint is used"),
    "another user of the machine": Attack(
        "looks into the state directories of a client and of the coordinator",
        "nothing is open to others",
    ),
    "secrets open to others": Attack(
        "other users of the machine can read a daemon's `tls.key`, `id_secret_file` or tokens file",
        "no start",
    ),
    "a certificate about to end": Attack(
        "nobody looks at a certificate that ends in half an hour",
        "a warning, and an audit line",
    ),
    "YAML bomb": Attack("gives a configuration of nested aliases", "exit code 2"),
    "YAML tag": Attack("gives a configuration that names a Python object", "exit code 2"),
    "CSV formula": Attack(
        "has ids that a spreadsheet would run: `=cmd|…`, `@…`",
        "text, in and out",
    ),
    "CSV with a huge cell": Attack("has a cell of 10 MB", "taken as text"),
    # A member of a run that trains.
    "replayed frames": Attack("a member sends the frames of an earlier run again", "dropped"),
    "NaN in a frame": Attack("a member sends a tensor of NaN", "left out"),
    "Inf in a frame": Attack("a member sends an infinite value", "left out"),
    "1e30 in a frame": Attack("a member sends a value of 1e30", "left out"),
    "shape overflow in a frame": Attack(
        "a member sends a tensor of shape (2^31, 2^31)", "left out"
    ),
    "wrong dtype in a frame": Attack("a member sends a tensor of another type", "left out"),
    "short data in a frame": Attack("a member sends fewer bytes than the shape says", "left out"),
    "oversize frame": Attack("a member sends a frame of 8 MB", "left out"),
    "frames without end": Attack("a member repeats a frame 5,000 times", "left out"),
    "heartbeats without end": Attack(
        "a member of a run sends heartbeats as fast as it can", "the others train on"
    ),
    "streams without end": Attack(
        "a member of a run opens streams to the others and cuts them, as fast as it can",
        "the others train on",
    ),
    "pretends to wait": Attack(
        "a member sends no frame any more, and says that it has just begun to wait for another",
        "left out",
    ),
    "comes and goes": Attack(
        "a member leaves and joins again without end", "waits twice as long each time"
    ),
    # A member of a federation that has trained.
    "a member comes back empty": Attack(
        "a member starts with an empty state directory, while the others serve",
        "no run starts",
    ),
    "a member asks for runs without end": Attack(
        "a member registers thirty times as somebody who wants a run", "no run starts"
    ),
}
