"""What runs party programs, whatever the clock: mailboxes, receives, rounds, cuts, codec, declared tags.

    me.py             what a program sees of its party, and nothing behind it
    member.py         a party in its engine: its mailboxes, receives, computations, reports
    party_links.py    its links to others
    party_streams.py  its random streams
    party_cut.py      its part of a cut
    reports.py        what it may report
    tape.py           what it sends and reads in an evaluation
    mail.py           messages, and the mailboxes that they wait in
    encoding.py       sending through a codec
    core.py           `Runtime`: all parties of a process, declared tags, ledger, round boundaries, cuts
    protocols.py      the `Clock` and the `Transport` that it is given

`federation/simulated` gives it virtual time and links, `federation/ray` real ones.

The way of a message: the transport's `send` copies the payload (`payload.copy_payload`) and checks its tag
(`Runtime.check_declared`). It writes trace and ledger, and hands the message to `Runtime.deliver`, which lays it into
the receiver's mailbox (`Member.accept`). A receive takes it out (`Member.take`).
"""
