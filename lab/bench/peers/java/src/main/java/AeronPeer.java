import io.aeron.Aeron;
import io.aeron.AeronVersion;
import io.aeron.ExclusivePublication;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.logbuffer.FragmentHandler;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.agrona.BitUtil;
import org.agrona.BufferUtil;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * One of two processes that share memory by way of Aeron's IPC: the loops of {@code benchkit::direct} and its talk with the
 * harness, on Aeron's public classes as its own IPC samples use them: an exclusive publication, a subscription that is
 * polled, nobody sleeps. The first process has the media driver in it, with one thread.
 */
public final class AeronPeer {
    private static final String CHANNEL = "aeron:ipc";
    private static final int THERE = 1;
    private static final int BACK = 2;
    /** Messages in a row before commands are looked at; fragments of one poll. */
    private static final int IN_A_ROW = 256;
    private static final int MOST_TRIPS = 1 << 22;
    private static final long QUIET_NANOS = 5_000_000_000L;

    private final int size;
    private final UnsafeBuffer message;
    private final Control control = new Control();
    private long messages;
    private long total;

    private AeronPeer(int size) {
        this.size = size;
        this.message = new UnsafeBuffer(BufferUtil.allocateDirectAligned(size, BitUtil.CACHE_LINE_LENGTH));
        for (int at = 0; at < size; at++) {
            message.putByte(at, (byte) (at % 251 + 1));
        }
    }

    /** {@code ROLE --at FOLDER --size BYTES --seconds S --warmup S} */
    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int at = 1; at + 1 < args.length; at += 2) {
            options.put(args[at], args[at + 1]);
        }
        String role = args[0];
        String folder = options.get("--at");
        AeronPeer peer = new AeronPeer(Integer.parseInt(options.get("--size")));
        boolean first = role.equals("publish") || role.equals("pong");
        MediaDriver driver = first ? MediaDriver.launch(new MediaDriver.Context().aeronDirectoryName(folder)) : null;
        Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(folder));
        String ready = first ? folder + " " + AeronVersion.VERSION : "";
        switch (role) {
            case "publish" -> peer.publish(aeron.addExclusivePublication(CHANNEL, THERE), ready);
            case "subscribe" -> peer.subscribe(aeron.addSubscription(CHANNEL, THERE));
            case "pong" -> peer.pong(
                    aeron.addSubscription(CHANNEL, BACK), aeron.addExclusivePublication(CHANNEL, THERE), ready);
            case "ping" -> peer.ping(
                    aeron.addSubscription(CHANNEL, THERE), aeron.addExclusivePublication(CHANNEL, BACK), options);
            default -> throw new IllegalArgumentException(role);
        }
        // The shared memory stays until the harness has its figures and ends this process.
        Thread.currentThread().join();
        driver.close();
    }

    private void publish(ExclusivePublication to, String ready) throws InterruptedException {
        control.say("ready " + ready);
        control.awaitGo();
        long rest = 0;
        for (int at = Long.BYTES; at < size; at++) {
            rest += (message.getByte(at) & 0xFFL) << (at % Long.BYTES * Byte.SIZE);
        }
        long sent = 0;
        long sum = 0;
        while (!control.stopped) {
            for (int more = 0; more < IN_A_ROW; more++) {
                message.putLong(0, sent, ByteOrder.LITTLE_ENDIAN);
                offer(to, message, size);
                sum += sent + rest;
                sent++;
            }
        }
        control.say("total " + Long.toUnsignedString(sent) + " " + Long.toUnsignedString(sum));
    }

    private static void offer(ExclusivePublication to, DirectBuffer bytes, int length) {
        long result;
        while ((result = to.offer(bytes, 0, length)) < 0) {
            if (result == Publication.CLOSED || result == Publication.MAX_POSITION_EXCEEDED) {
                throw new IllegalStateException("the publication ended: " + result);
            }
            Thread.onSpinWait();
        }
    }

    private void subscribe(Subscription from) throws InterruptedException {
        awaitConnected(from, null);
        control.say("ready");
        FragmentHandler sums = (buffer, offset, length, header) -> {
            messages++;
            total += sum(buffer, offset, length);
        };
        long lastArrival = 0;
        while (true) {
            if (from.poll(sums, IN_A_ROW) > 0) {
                control.messages = messages;
                continue;
            }
            Thread.onSpinWait();
            long[] expected = control.expected;
            if (expected == null) {
                continue;
            }
            long now = System.nanoTime();
            lastArrival = lastArrival == 0 ? now : lastArrival;
            if (expected[0] == messages || now - lastArrival > QUIET_NANOS) {
                control.say("total " + Long.toUnsignedString(messages) + " " + Long.toUnsignedString(total));
                return;
            }
        }
    }

    private void pong(Subscription from, ExclusivePublication to, String ready) {
        control.say("ready " + ready);
        FragmentHandler back = (buffer, offset, length, header) -> {
            message.putBytes(0, buffer, offset, length);
            offer(to, message, length);
        };
        while (true) {
            if (from.poll(back, IN_A_ROW) == 0) {
                Thread.onSpinWait();
            }
        }
    }

    private void ping(Subscription from, ExclusivePublication to, Map<String, String> options)
            throws InterruptedException {
        long[] trips = new long[MOST_TRIPS];
        Arrays.fill(trips, Long.MAX_VALUE);
        awaitConnected(from, to);
        control.say("ready");
        control.awaitGo();
        boolean[] right = {false};
        FragmentHandler compare = (buffer, offset, length, header) ->
                right[0] = isMessage(buffer, offset, length);
        long warm = System.nanoTime() + nanos(options.get("--warmup"));
        long end = warm + nanos(options.get("--seconds"));
        long number = 0;
        int counted = 0;
        long back = 0;
        while (back - end < 0 && counted < trips.length) {
            message.putLong(0, number, ByteOrder.LITTLE_ENDIAN);
            long sent = System.nanoTime();
            offer(to, message, size);
            while (from.poll(compare, 1) == 0) {
                Thread.onSpinWait();
            }
            back = System.nanoTime();
            if (!right[0]) {
                throw new IllegalStateException("after " + number + " messages another one arrived than was sent");
            }
            number++;
            if (back - warm >= 0) {
                trips[counted++] = back - sent;
            }
        }
        Arrays.sort(trips, 0, counted);
        long p50 = trips[(int) (counted * 50L / 100)];
        long p99 = trips[(int) (counted * 99L / 100)];
        control.say("total " + counted + " " + p50 + " " + p99 + " " + (back - warm));
    }

    private boolean isMessage(DirectBuffer buffer, int offset, int length) {
        int at = 0;
        for (; at <= length - Long.BYTES; at += Long.BYTES) {
            if (buffer.getLong(offset + at) != message.getLong(at)) {
                return false;
            }
        }
        for (; at < length; at++) {
            if (buffer.getByte(offset + at) != message.getByte(at)) {
                return false;
            }
        }
        return length == size;
    }

    private static long nanos(String seconds) {
        return (long) (Double.parseDouble(seconds) * 1e9);
    }

    private static void awaitConnected(Subscription from, ExclusivePublication to) throws InterruptedException {
        while (!from.isConnected() || (to != null && !to.isConnected())) {
            Thread.sleep(1);
        }
    }

    /** All bytes as little-endian words of eight; what is left at the end is a word with zeros above it. */
    private static long sum(DirectBuffer buffer, int offset, int length) {
        long sum = 0;
        int end = offset + (length & -Long.BYTES);
        int at = offset;
        for (; at < end; at += Long.BYTES) {
            sum += buffer.getLong(at, ByteOrder.LITTLE_ENDIAN);
        }
        for (int left = at; left < offset + length; left++) {
            sum += (buffer.getByte(left) & 0xFFL) << ((left - at) * Byte.SIZE);
        }
        return sum;
    }

    /** This process's side of the talk with the harness, as {@code benchkit::control}. */
    private static final class Control {
        private volatile long messages;
        private volatile boolean stopped;
        private volatile long[] expected;
        private final CountDownLatch go = new CountDownLatch(1);

        private Control() {
            Thread listener = new Thread(this::listen, "control");
            listener.setDaemon(true);
            listener.start();
        }

        private void listen() {
            try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
                for (String line = in.readLine(); line != null; line = in.readLine()) {
                    String[] words = line.trim().split("\\s+");
                    switch (words[0]) {
                        case "mark" -> say("count " + messages + " " + System.nanoTime());
                        case "go" -> go.countDown();
                        case "stop" -> stopped = true;
                        case "expect" -> expected = Arrays.stream(words).skip(1)
                                .mapToLong(Long::parseUnsignedLong).toArray();
                        default -> throw new IOException("unknown command: " + line);
                    }
                }
            } catch (IOException error) {
                System.err.println("AeronPeer: " + error.getMessage());
            }
            // The harness is gone.
            Runtime.getRuntime().halt(0);
        }

        private void awaitGo() throws InterruptedException {
            go.await();
        }

        private synchronized void say(String line) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
