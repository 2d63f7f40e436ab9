package main

import (
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

const there, back = "there", "back"

// natsLink publishes to one subject and subscribes to another. The server runs beside the answerer.
type natsLink struct {
	conn *nats.Conn
	to   string
	came chan *nats.Msg
}

func openNats(e *end) (*natsLink, error) {
	server, hear, to := e.to, back, there
	if e.role == "answer" {
		server, hear, to = e.bind, there, back
	}
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	conn, err := connect("nats://" + net.JoinHostPort(host, "4222"))
	if err != nil {
		return nil, err
	}
	l := &natsLink{conn: conn, to: to, came: make(chan *nats.Msg, 1<<16)}
	if _, err := conn.ChanSubscribe(hear, l.came); err != nil {
		return nil, err
	}
	return l, conn.Flush()
}

// connect waits until the server has started.
func connect(url string) (*nats.Conn, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := nats.Connect(url, nats.MaxReconnects(0))
		if err == nil || time.Now().After(deadline) {
			return conn, err
		}
	}
}

func (l *natsLink) send(message []byte) error { return l.conn.Publish(l.to, message) }

func (l *natsLink) receive(wait time.Duration) ([]byte, error) {
	select {
	case m := <-l.came:
		return m.Data, nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case m := <-l.came:
		return m.Data, nil
	case <-timer.C:
		return nil, l.conn.LastError()
	}
}
