package main

import (
	"bufio"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"sync/atomic"
	"time"

	"github.com/ugorji/go/codec"
)

// The codec buffers the connection by itself.
func handle() *codec.MsgpackHandle {
	h := new(codec.MsgpackHandle)
	h.WriteExt = true
	return h
}

// Peer has the methods that can be called.
type Peer struct {
	received atomic.Uint64
	every    uint32
}

// Echo responds with the message, or with its number alone.
func (p *Peer) Echo(message []byte, answer *[]byte) error {
	p.received.Add(1)
	if p.every > 1 && len(message) >= 4 {
		message = message[:4]
	}
	*answer = message
	return nil
}

func serveRPC(e *end) error {
	listener, err := net.Listen("tcp", e.bind)
	if err != nil {
		return err
	}
	peer := &Peer{every: e.answerEvery}
	server := rpc.NewServer()
	if err := server.Register(peer); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go server.ServeCodec(codec.MsgpackSpecRpc.ServerCodec(conn, handle()))
		}
	}()
	stopped := listen(bufio.NewScanner(os.Stdin))
	fmt.Println("ready")
	for !stopped.Load() {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Printf("total %d 0\n", peer.received.Load())
	select {}
}

// rpcLink calls without waiting. Results arrive in any order, and each of them is an answer.
type rpcLink struct {
	client *rpc.Client
	done   chan *rpc.Call
}

func dialRPC(e *end) (*rpcLink, error) {
	conn, err := net.Dial("tcp", e.to)
	if err != nil {
		return nil, err
	}
	client := rpc.NewClientWithCodec(codec.MsgpackSpecRpc.ClientCodec(conn, handle()))
	return &rpcLink{client: client, done: make(chan *rpc.Call, 1<<17)}, nil
}

func (l *rpcLink) send(message []byte) error {
	l.client.Go("Peer.Echo", message, new([]byte), l.done)
	return nil
}

func (l *rpcLink) receive(wait time.Duration) ([]byte, error) {
	// Only a caller that has to wait needs a timer.
	select {
	case call := <-l.done:
		return *call.Reply.(*[]byte), call.Error
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case call := <-l.done:
		return *call.Reply.(*[]byte), call.Error
	case <-timer.C:
		return nil, nil
	}
}
