// An end of an exchange over NATS or MessagePack-RPC, started by `cmq-bench`. The loop and the lines to the harness
// are those of lab/bench/benchkit (exchange.rs, ends.rs).
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
)

type end struct {
	role, system string
	bind, to     string
	size         int
	answerEvery  uint32
	outstanding  uint32
	messages     uint32
	warmup       int
	least        int
	time         time.Duration
	giveUp       time.Duration
}

// A link carries messages. receive returns nil if none arrives in time.
type link interface {
	send(message []byte) error
	receive(wait time.Duration) ([]byte, error)
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "has" {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cmq-peers-go:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) < 3 {
		return errors.New("usage: cmq-peers-go drive|answer SYSTEM OPTIONS; cmq-bench calls it")
	}
	e := end{role: os.Args[1], system: os.Args[2]}
	var every, outstanding, messages, timeMs, giveUpUs, ignored uint64
	flags := flag.NewFlagSet("cmq-peers-go", flag.ContinueOnError)
	flags.StringVar(&e.bind, "bind", "", "its own address")
	flags.StringVar(&e.to, "to", "", "the other one's address")
	flags.IntVar(&e.size, "size", 4, "bytes of a message")
	flags.Uint64Var(&every, "answer-every", 1, "answer every so many messages")
	flags.Uint64Var(&outstanding, "outstanding", 1, "numbers beyond the last answered one")
	flags.Uint64Var(&messages, "messages", 1000, "messages of an exchange")
	flags.IntVar(&e.warmup, "warmup", 1, "exchanges before those that count")
	flags.IntVar(&e.least, "least", 3, "exchanges that count, at least")
	flags.Uint64Var(&timeMs, "time-ms", 500, "milliseconds")
	flags.Uint64Var(&giveUpUs, "give-up-us", 10_000_000, "microseconds without an answer")
	flags.Uint64Var(&ignored, "qthresh", 0, "not used")
	flags.Uint64Var(&ignored, "timeout-us", 0, "not used")
	if err := flags.Parse(os.Args[3:]); err != nil {
		return err
	}
	e.answerEvery, e.outstanding, e.messages = uint32(every), uint32(outstanding), uint32(messages)
	e.time = time.Duration(timeMs) * time.Millisecond
	e.giveUp = time.Duration(giveUpUs) * time.Microsecond
	switch {
	case e.system == "nats":
		l, err := openNats(&e)
		if err != nil {
			return err
		}
		if e.role == "answer" {
			return answer(&e, l)
		}
		return drive(&e, l)
	case e.system == "msgpack-rpc" && e.role == "answer":
		return serveRPC(&e)
	case e.system == "msgpack-rpc":
		l, err := dialRPC(&e)
		if err != nil {
			return err
		}
		return drive(&e, l)
	}
	return fmt.Errorf("%s is not known here", e.system)
}

// listen ends this process when the harness ends. It returns whether the harness sent stop.
func listen(input *bufio.Scanner) *atomic.Bool {
	stopped := new(atomic.Bool)
	go func() {
		for input.Scan() {
			if input.Text() == "stop" {
				stopped.Store(true)
			}
		}
		os.Exit(0)
	}()
	return stopped
}

func pattern(size int) []byte {
	state := uint64(0x9E3779B97F4A7C15)
	out := make([]byte, size)
	for i := range out {
		state = state*6364136223846793005 + 1442695040888963407
		out[i] = byte(state >> 56)
	}
	return out
}

func drive(e *end, l link) error {
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	input.Scan()
	listen(input)
	message := pattern(e.size)
	var sent, answered uint32
	var total, answers, givenUp uint64
	var times []float64
	warmup, inExchange := e.warmup, uint32(0)
	began := time.Now()
	counting := began
	for {
		if warmup == 0 && len(times) >= e.least && began.Sub(counting) >= e.time {
			break
		}
		for sent-answered < e.outstanding {
			binary.LittleEndian.PutUint32(message, sent)
			if err := l.send(message); err != nil {
				return err
			}
			sent++
			total++
		}
		answer, err := l.receive(e.giveUp)
		if err != nil {
			return err
		}
		accounted := uint32(0)
		if answer == nil {
			givenUp++
			accounted, answered = sent-answered, sent
		} else {
			if len(answer) != 4 && !bytes.Equal(answer[4:], message[4:]) {
				return errors.New("an answer is not what was sent")
			}
			answers++
			number := binary.LittleEndian.Uint32(answer)
			if beyond := number - answered; beyond < e.outstanding {
				answered, accounted = number+1, beyond+1
			}
		}
		for inExchange += accounted; inExchange >= e.messages; inExchange -= e.messages {
			now := time.Now()
			if warmup == 0 {
				times = append(times, float64(now.Sub(began)))
			} else if warmup--; warmup == 0 {
				counting = now
			}
			began = now
		}
	}
	mean, deviation := meanAndDeviation(times)
	fmt.Printf("done %d %d 0 %d %d %.0f %.0f\n", total, answers, givenUp, len(times), mean, deviation)
	select {}
}

func meanAndDeviation(times []float64) (float64, float64) {
	sum, squares := 0.0, 0.0
	for _, t := range times {
		sum += t
	}
	mean := sum / math.Max(float64(len(times)), 1)
	for _, t := range times {
		squares += (t - mean) * (t - mean)
	}
	return mean, math.Sqrt(squares / math.Max(float64(len(times))-1, 1))
}

func answer(e *end, l link) error {
	stopped := listen(bufio.NewScanner(os.Stdin))
	fmt.Println("ready")
	var received uint64
	var answered uint32
	for {
		message, err := l.receive(50 * time.Millisecond)
		if err != nil {
			return err
		}
		if message == nil {
			if stopped.Load() {
				break
			}
			continue
		}
		received++
		if e.answerEvery > 1 {
			number := binary.LittleEndian.Uint32(message)
			if ahead := number + 1 - answered; ahead < e.answerEvery || ahead >= math.MaxUint32/2 {
				continue
			}
			answered = number + 1
			message = message[:4]
		}
		if err := l.send(message); err != nil {
			return err
		}
	}
	fmt.Printf("total %d 0\n", received)
	select {}
}
