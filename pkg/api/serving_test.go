package api_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api"
)

// soon is the limit that a test expects to expire. long is for the other limits,
// which must not expire during the test.
const (
	soon = 50 * time.Millisecond
	long = time.Minute
)

// served is a server with bounds on a TCP port.
type served struct {
	t       *testing.T
	address string
	closed  chan struct{} // the server has closed a connection
}

func serve(t *testing.T, b api.Bounds, h http.HandlerFunc) *served {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, address: ln.Addr().String(), closed: make(chan struct{}, 1)}
	server := b.Server(h)
	note := server.ConnState
	server.ConnState = func(c net.Conn, state http.ConnState) {
		note(c, state)
		if state == http.StateClosed {
			s.closed <- struct{}{}
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(b.Listen(ln)) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return s
}

// dial opens a connection and sends the text on it.
func (s *served) dial(text string) *net.TCPConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// ends reports whether the server closes the connection within 20 seconds.
func ends(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := io.Copy(io.Discard, c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

const get = "GET / HTTP/1.1\r\nHost: fairlead.test\r\n\r\n"

// Formerly a caller without a token could hold a connection open without a limit, and
// a few hundred such connections blocked all callers.
func TestIdleConnectionIsClosed(t *testing.T) {
	large := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<20)) } // no socket buffers so much
	for name, test := range map[string]struct {
		bounds api.Bounds
		send   string
		answer http.HandlerFunc
	}{
		"no request":                        {api.Bounds{Header: soon, Idle: long, Answer: long}, "", nil},
		"half a header":                     {api.Bounds{Header: soon, Idle: long, Answer: long}, "GET / HTTP/1.1\r\nHost: fairlead.te", nil},
		"no second request":                 {api.Bounds{Header: long, Idle: soon, Answer: long}, get, func(http.ResponseWriter, *http.Request) {}},
		"half a header of a second request": {api.Bounds{Header: soon, Idle: long, Answer: long}, get + "GET / HT", func(http.ResponseWriter, *http.Request) {}},
		"one large answer is not read":      {api.Bounds{Header: long, Idle: long, Answer: soon}, get, large},
		"many small answers are not read": {api.Bounds{Header: long, Idle: long, Answer: soon}, strings.Repeat(get, 5000),
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<10)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.bounds, test.answer)
			s.dial(test.send)
			select {
			case <-s.closed:
			case <-time.After(20 * time.Second):
				t.Error("the server does not close the connection")
			}
		})
	}
}

// bubble starts a server with an in-memory network in the synctest bubble. It sends
// the request get and returns the connection.
func bubble(t *testing.T, b api.Bounds, h http.HandlerFunc) net.Conn {
	t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	server, done := b.Server(h), make(chan struct{})
	go func() { defer close(done); _ = server.Serve(b.Listen(ln)) }()
	c, err := ln.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), server.Close(); <-done })
	if _, err := io.WriteString(c, get); err != nil {
		t.Fatal(err)
	}
	return c
}

// Bounds.Answer limits the time of each part of an answer. A download that continues
// may take longer in total, for example an artifact on a slow line.
func TestSlowDownloadIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parts, part = 100, 64 << 10
		c := bubble(t, api.Bounds{}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, parts*part)) // one write: the server splits it
		})
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range parts {
			time.Sleep(20 * time.Second) // bubble time
			if _, err := io.CopyN(io.Discard, answer.Body, part); err != nil {
				t.Fatalf("the server cut the download after %d of %d parts: %v", n, parts, err)
			}
		}
	})
}

// A handler that waits for a change, or for the next line of a log, sends nothing for
// longer than a part of an answer may take.
func TestAnswerThatWaitsIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bubble(t, api.Bounds{}, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				time.Sleep(10 * time.Minute) // bubble time
				fmt.Fprintln(w, "news")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
			}
		})
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(answer.Body); err != nil || string(b) != "news\nnews\nnews\n" {
			t.Errorf("answer %q, %v", b, err)
		}
	})
}

// Formerly 190 connections without a token used up the server's limit of open files.
// It then answered no request for longer than a lease lasts.
func TestConnectionsWithoutTokenDoNotLockOutOthers(t *testing.T) {
	const most = 20
	p := newPlane(t, bounded{bounds: api.Bounds{Connections: most, Header: long, Idle: long}})
	address := strings.TrimPrefix(p.url, "http://")
	known := make([]*http.Client, 5)
	ask := func(c *http.Client) (reused bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		req, err := request(ctx, "GET", p.url+"/v1/apps", p.api, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(req)
		if err != nil {
			t.Fatalf("a request with a good token fails: %v", err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != 200 {
			t.Fatalf("a request with a good token is answered %d, %v", res.StatusCode, err)
		}
		return reused
	}
	for i := range known {
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		known[i] = &http.Client{Transport: transport}
		ask(known[i])
	}
	var held []net.Conn
	for i := range 10 * most {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		held = append(held, c)
		// Half a header, a missing body, a wrong token.
		if _, err := io.WriteString(c, []string{"GET /v1/apps HTTP/1.1\r\nHost: a", "POST /v1/apps/x HTTP/1.1\r\nHost: a\r\nContent-Length: 250000\r\n\r\n{",
			"GET /v1/apps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer fla_x\r\n\r\n"}[i%3]); err != nil {
			t.Fatal(err)
		}
		if !ask(known[i%len(known)]) {
			t.Fatalf("after %d connections without a token, the server closed one with a good token", i+1)
		}
		fresh := &http.Transport{DisableKeepAlives: true}
		ask(&http.Client{Transport: fresh})
	}
	if !ends(held[0]) {
		t.Error("the server keeps the first connection without a token")
	}
}

// To accept a new connection, the server closes one that is idle between two
// requests. It never closes one that is being answered and has a good token.
func TestConnectionInUseIsNotClosedForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		p := newBubblePlane(t, bounded{bounds: api.Bounds{Connections: most, Header: long, Idle: time.Hour}})
		p.publish()
		p.install("acme")
		d := p.deploy("acme")
		p.http.CloseIdleConnections()
		dial := p.http.Transport.(*http.Transport).DialContext
		open := func(path string) net.Conn {
			synctest.Wait() // the handlers of the earlier requests have started
			c, err := dial(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			// The server may already have closed a refused connection.
			_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\n\r\n", path, p.api)
			return c
		}
		waits := fmt.Sprintf("/v1/deployments/%s?wait_seconds=20&after=%d", d.ID, d.Revision+1000)
		polls := []net.Conn{open(waits), open(waits)}
		idle := open("/v1/apps")
		answer, err := http.ReadResponse(bufio.NewReader(idle), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		polls = append(polls, open(waits))
		if !ends(idle) {
			t.Error("the server keeps the idle connection and closed another one")
		}
		synctest.Wait()
		refused := open(waits)
		if !ends(refused) {
			t.Error("the server accepts more connections than the limit")
		}
		for n, c := range polls {
			if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.StatusCode != 200 {
				t.Errorf("the server closed long poll %d for another connection: %v", n, err)
			}
		}
		p.shutDown()
	})
}
