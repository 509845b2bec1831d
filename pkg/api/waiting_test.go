package api_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
)

// wait is a long poll: its request, and the change that ends it.
type wait struct {
	name, method, path, token string
	body                      any
	change                    func() // causes the change that the poll waits for
	quiet                     int    // status if nothing changes
}

// waits returns all long polls of the APIs, on a plane with a running job and a
// deployment.
func waits(p *plane) []wait {
	p.publish()
	p.install("acme")
	d := p.deploy("acme")
	session := p.session("local")
	first := p.claim(session)
	r := p.start(first)
	p.start(p.claim(session)) // no job is left to claim
	job := r.claim.Job
	log := "/runner/v1/jobs/" + job + "/log?offset=0"
	idle := call[wire.Runner](p, "POST", "/v1/runners", p.api, wire.CreateRunnerRequest{Name: "idle"})
	queued := call[wire.Job](p, "POST", "/v1/runners/"+idle.Name+"/checks", p.api, nil).ID
	d = call[wire.Deployment](p, "GET", "/v1/deployments/"+d.ID, p.api, nil)
	return []wait{
		{"a claim", "POST", "/runner/v1/claims", session, wire.ClaimRequest{WaitSeconds: 20},
			func() { call[wire.Job](p, "POST", "/v1/runners/local/checks", p.api, nil) }, 204},
		{"a log", "GET", "/v1/jobs/" + job + "/log?wait_seconds=20", p.api, nil,
			func() { call[wire.LogAppended](p, "PUT", log, r.lease, []byte("a line\n")) }, 200},
		{"an empty log", "GET", "/v1/jobs/" + queued + "/log?wait_seconds=20", p.api, nil,
			func() { call[wire.Job](p, "POST", "/v1/jobs/"+queued+"/cancel", p.api, nil) }, 200},
		{"a heartbeat", "POST", "/runner/v1/jobs/" + job + "/heartbeat", r.lease, wire.JobHeartbeat{WaitSeconds: 20},
			func() { call[wire.Job](p, "POST", "/v1/jobs/"+job+"/cancel", p.api, nil) }, 200},
		{"a deployment", "GET", "/v1/deployments/" + d.ID + "?wait_seconds=20&after=" + jsonNumber(d.Revision), p.api, nil,
			func() { call[wire.Deployment](p, "POST", "/v1/deployments/"+d.ID+"/cancel", p.api, nil) }, 200},
	}
}

// ask sends the long poll in a new goroutine.
func (w wait) ask(p *plane) <-chan result {
	ch := make(chan result, 1)
	go func() {
		res, err := p.try(context.WithoutCancel(p.t.Context()), w.method, w.path, w.token, w.body)
		if err != nil {
			p.t.Errorf("%s: %v", w.name, err)
		}
		ch <- res
	}()
	return ch
}

func TestLongPollReturnsAtOnceOnAChange(t *testing.T) {
	for i := range 5 {
		synctest.Test(t, func(t *testing.T) {
			p := newBubblePlane(t)
			w := waits(p)[i]
			began := time.Now()
			ch := w.ask(p)
			time.Sleep(7 * time.Second) // bubble time
			synctest.Wait()
			select {
			case res := <-ch:
				t.Fatalf("%s did not wait: %d %s", w.name, res.StatusCode, res.body)
			default:
			}
			w.change()
			res := <-ch
			if res.StatusCode != 200 {
				t.Errorf("%s: %d %s", w.name, res.StatusCode, short(res.body))
			}
			if waited := time.Since(began); waited != 7*time.Second {
				t.Errorf("%s was answered after %s, and the change came after 7s", w.name, waited)
			}
			p.shutDown()
		})
	}
}

// The longest wait exceeds the time limit of a request body. If the server left the
// read deadline on the connection, it would end the poll early.
func TestLongPollWithoutAChangeLastsFullWait(t *testing.T) {
	for i := range 5 {
		synctest.Test(t, func(t *testing.T) {
			p := newBubblePlane(t)
			w := waits(p)[i]
			began := time.Now()
			res := <-w.ask(p)
			if res.StatusCode != w.quiet {
				t.Errorf("%s: %d %s", w.name, res.StatusCode, short(res.body))
			}
			if waited := time.Since(began); waited != 20*time.Second {
				t.Errorf("%s waited %s", w.name, waited)
			}
			p.shutDown()
		})
	}
}

func TestLongPollEndsWithRetryWhenServerStops(t *testing.T) {
	for i := range 5 {
		synctest.Test(t, func(t *testing.T) {
			p := newBubblePlane(t)
			w := waits(p)[i]
			ch := w.ask(p)
			synctest.Wait()
			p.stop()
			res := <-ch
			if res.StatusCode != 503 || res.code(t) != "interrupted" {
				t.Errorf("%s: %d %s", w.name, res.StatusCode, short(res.body))
			}
			p.shutDown()
		})
	}
}

// The server stops to read a body that arrives too slowly. The test writes to the
// connection itself: http.Transport still writes the body when the server closes the
// connection, and may report that error instead of the answer.
func TestSlowBodyTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBubblePlane(t)
		conn, err := p.http.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "fairlead.test")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		began := time.Now()
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, err := fmt.Fprintf(conn, "POST /v1/installs HTTP/1.1\r\nHost: fairlead.test\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n", p.api)
			for err == nil {
				time.Sleep(time.Second) // bubble time
				_, err = conn.Write([]byte{' '})
			}
		}()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		res := result{answer, body}
		if got := res.code(t); got != "request-timeout" || time.Since(began) > 16*time.Second {
			t.Errorf("problem %s after %s", got, time.Since(began))
		}
		conn.Close()
		<-written
		p.shutDown()
	})
}

// If a handler refuses a request before it reads the body, the server must answer at
// once and close the connection. Formerly it first read 256 KB of the body, at a byte
// a second, and 290 such requests without a token blocked all callers.
func TestRefusedBodyClosesItsConnection(t *testing.T) {
	for name, test := range map[string]struct {
		request string
		status  int
	}{
		"no such path":                {"POST /v1/nothing", 404},
		"no such method":              {"PUT /v1/apps", 405},
		"a route that needs a token":  {"POST /v1/installs", 401},
		"a route of steps":            {"PUT /runner/v1/jobs/job_1/plan", 401},
		"a route without a body":      {"GET /v1/meta", 200},
		"an upload to the registry":   {"PATCH /v2/x/blobs/uploads/1", 401},
		"a manifest for the registry": {"PUT /v2/x/manifests/1", 401},
		"a document":                  {"GET /v1/openapi.yaml", 200},
		"a path with a NUL":           {"POST /v1/%00", 400},
		"a state without a lease":     {"POST /runner/v1/state/ins_1/web", 401},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newBubblePlane(t)
				conn, err := p.http.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "fairlead.test")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				began := time.Now()
				if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: fairlead.test\r\nContent-Length: 250000\r\n\r\n{", test.request); err != nil {
					t.Fatal(err)
				}
				r := bufio.NewReader(conn)
				answer, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, answer.Body); err != nil {
					t.Fatal(err)
				}
				_, err = r.ReadByte()
				if took := time.Since(began); answer.StatusCode != test.status || !errors.Is(err, io.EOF) || took > time.Second {
					t.Errorf("status %d, then error %v, after %s", answer.StatusCode, err, took)
				}
				p.shutDown()
			})
		})
	}
}
