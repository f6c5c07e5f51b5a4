"""So many downloads at once through a gateway, each by a TLS connection of its own, none of which is read beyond its first bytes.

    crowd.py GATEWAY:PORT HOST COUNT CA

Says how many began, once all have or nobody has for a while.
"""

import asyncio
import ssl
import sys

PATIENCE_SECONDS = 15
# Handshakes at once: the time they take is not what is asked here.
TOGETHER = 32


async def download(proxy, port, host, context, together, open_ones):
    async with together:
        reader, writer = await asyncio.open_connection(proxy, port, limit=1024)
        open_ones.append(writer)
        writer.write(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await writer.start_tls(context, server_hostname=host)
        writer.write(f"GET /big/64 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return await reader.readuntil(b"\r\n")


async def main():
    where, host, count, ca = sys.argv[1:]
    proxy, port = where.split(":")
    context = ssl.create_default_context(cafile=ca)
    together, open_ones = asyncio.Semaphore(TOGETHER), []
    tries = [asyncio.create_task(download(proxy, int(port), host, context, together, open_ones)) for _ in range(int(count))]
    left, done = set(tries), set()
    while left:
        new, left = await asyncio.wait(left, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not new:
            break
        done |= new
    for one in done:
        if one.exception() or b" 200 " not in one.result():
            print("crowd:", repr(one.exception()) if one.exception() else one.result(), file=sys.stderr)
    print(sum(1 for one in done if not one.exception() and b" 200 " in one.result()), flush=True)
    # Whoever asked looks at the gateway now, while all stand.
    await asyncio.to_thread(sys.stdin.readline)
    for writer in open_ones:
        writer.transport.abort()


asyncio.run(main())
