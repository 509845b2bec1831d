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

// soon and long are bounds of the tests: what must be cut is, after soon; what
// must not would be if long passed.
const (
	soon = 50 * time.Millisecond
	long = time.Minute
)

// served is a server with bounds, on a real network.
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

// ends reports whether the connection is closed by the server.
func ends(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := io.Copy(io.Discard, c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

const get = "GET / HTTP/1.1\r\nHost: fairlead.test\r\n\r\n"

// A caller without a token held a connection for as long as it liked, and some
// hundred of them everybody's.
func TestIdleConnectionIsClosed(t *testing.T) {
	large := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<20)) } // no socket buffers so much
	for name, test := range map[string]struct {
		bounds api.Bounds
		send   string
		answer http.HandlerFunc
	}{
		"nothing is sent":                    {api.Bounds{Header: soon, Idle: long, Answer: long}, "", nil},
		"a header is sent half":              {api.Bounds{Header: soon, Idle: long, Answer: long}, "GET / HTTP/1.1\r\nHost: fairlead.te", nil},
		"no request follows the first":       {api.Bounds{Header: long, Idle: soon, Answer: long}, get, func(http.ResponseWriter, *http.Request) {}},
		"half a header follows the first":    {api.Bounds{Header: soon, Idle: long, Answer: long}, get + "GET / HT", func(http.ResponseWriter, *http.Request) {}},
		"an answer in one piece is not read": {api.Bounds{Header: long, Idle: long, Answer: soon}, get, large},
		"answers are not read, and many are due": {api.Bounds{Header: long, Idle: long, Answer: soon}, strings.Repeat(get, 5000),
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 8<<10)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.bounds, test.answer)
			s.dial(test.send)
			select {
			case <-s.closed:
			case <-time.After(20 * time.Second):
				t.Error("the connection is held")
			}
		})
	}
}

// bubble serves on a network in memory, whose time is the test's, and returns a
// connection to it.
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

// An answer that the caller goes on reading takes longer than a part of it may:
// an artifact on a slow line.
func TestASlowDownloadIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parts, part = 100, 64 << 10
		c := bubble(t, api.Bounds{}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, parts*part)) // at once: the parts are the server's
		})
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range parts {
			time.Sleep(20 * time.Second) // of the bubble
			if _, err := io.CopyN(io.Discard, answer.Body, part); err != nil {
				t.Fatalf("it was cut after %d of %d parts: %v", n, parts, err)
			}
		}
	})
}

// A handler that waits for news says nothing for longer than a part of an answer
// may take, and so does one between two lines of a log that is followed.
func TestAnswerThatWaitsIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bubble(t, api.Bounds{}, func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				time.Sleep(10 * time.Minute) // of the bubble
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
			t.Errorf("the answer is %q, %v", b, err)
		}
	})
}

// TestConnectionsWithoutTokenDoNotLockOutOthers: 190 of them took all the files
// that a server may have open, and no request was answered for longer than a lease
// lasts.
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
			t.Fatalf("who has a token is not answered: %v", err)
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != 200 {
			t.Fatalf("who has a token is answered %d, %v", res.StatusCode, err)
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
		// Half a header, a body that does not come, a wrong token.
		if _, err := io.WriteString(c, []string{"GET /v1/apps HTTP/1.1\r\nHost: a", "POST /v1/apps/x HTTP/1.1\r\nHost: a\r\nContent-Length: 250000\r\n\r\n{",
			"GET /v1/apps HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer fla_x\r\n\r\n"}[i%3]); err != nil {
			t.Fatal(err)
		}
		if !ask(known[i%len(known)]) {
			t.Fatalf("after %d connections without a token, one that is known was closed for them", i+1)
		}
		fresh := &http.Transport{DisableKeepAlives: true}
		ask(&http.Client{Transport: fresh})
	}
	if !ends(held[0]) {
		t.Error("the first connection without a token is still held")
	}
}

// A connection on which a good token is being answered is not closed for another
// one; one that waits between two requests is.
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
			synctest.Wait() // what is asked is being answered
			c, err := dial(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			// One that is refused may be closed by now.
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
			t.Error("the connection that waits between two requests is held, and the new one took another's place")
		}
		synctest.Wait()
		refused := open(waits)
		if !ends(refused) {
			t.Error("there are more connections than there can be")
		}
		for n, c := range polls {
			if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.StatusCode != 200 {
				t.Errorf("long poll %d was closed for another connection: %v", n, err)
			}
		}
		p.shutDown()
	})
}
