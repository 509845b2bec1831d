package plane

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing/iotest"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/test/proxy"
)

// observer is called after the control plane answered a request with success. job is the
// job in the request's path, or "".
type observer func(r *http.Request, job string, body []byte, answer *httptest.ResponseRecorder)

// observe records the requests of agents and steps that the control plane accepts. It also
// replaces the specs in answers to steps, and the configuration in answers to agents, with
// the test's specs and configuration.
func (p *Plane) observe(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	// Requests that wait long or have large bodies are not recorded as a whole.
	passed := func(route wire.Route, see func(job string)) {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			s := &status{ResponseWriter: w}
			next.ServeHTTP(s, r)
			if s.code < 300 {
				see(r.PathValue("job"))
			}
		})
	}
	passed(wire.AppendJobLog, p.noting(func(j *record) { j.Appends++ }))
	passed(wire.HeartbeatJob, p.noting(func(j *record) { j.Renewals++ }))
	passed(wire.RenewLogAccess, p.noting(func(j *record) { j.LogRenewals++ }))
	passed(wire.RescueJobLog, p.noting(func(j *record) { j.Appends++ }))
	for route, see := range map[wire.Route]observer{
		wire.CreateSession: p.sawSession, wire.HeartbeatSession: p.sawBeat, wire.ClaimJob: p.sawClaim,
		wire.StartJob: p.sawStart, wire.FinishJob: p.sawFinish, wire.ReportDied: p.sawDeath,
	} {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			rest := io.Reader(bytes.NewReader(body))
			if err != nil {
				rest = io.MultiReader(rest, iotest.ErrReader(err))
			}
			r.Body = io.NopCloser(rest)
			answer := proxy.Record(w)
			next.ServeHTTP(answer, r)
			if answer.Code < 300 {
				see(r, r.PathValue("job"), body, answer.ResponseRecorder)
			}
			answer.Send()
		})
	}
	return mux
}

// status records the status code of an answer.
type status struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// counting counts requests, also those that fail, and the requests that are open.
func (p *Plane) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := asked{r.Method, r.URL.Path}
		p.change(func() {
			p.asked[request]++
			p.open[request]++
		})
		defer p.change(func() { p.open[request]-- })
		if p.opt.Record && r.Body != nil {
			body := &recorded{ReadCloser: r.Body}
			r.Body = body
			defer p.change(func() { p.received = append(p.received, body.read.Bytes()) })
		}
		next.ServeHTTP(w, r)
	})
}

// recorded is a body that keeps what was read of it.
type recorded struct {
	io.ReadCloser
	read bytes.Buffer
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.read.Write(b[:n])
	return n, err
}

// asked is the key of the counters: the method and the path of a request.
type asked struct{ method, path string }

// Asked returns the number of requests that a route has received.
func (p *Plane) Asked(route wire.Route) int { return p.sum(p.asked, route) }

// Open returns the number of requests of a route that the control plane is still handling.
// If an agent closes the connection of its poll, the poll stays open until the control
// plane notices the closed connection. Until that moment, the poll can claim a job.
func (p *Plane) Open(route wire.Route) int { return p.sum(p.open, route) }

// sum adds the counts of the requests of a route.
func (p *Plane) sum(counts map[asked]int, route wire.Route) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, times := range counts {
		if proxy.Route(route)(&http.Request{Method: a.method, URL: &url.URL{Path: a.path}}) {
			n += times
		}
	}
	return n
}

func (p *Plane) noting(f func(*record)) func(job string) {
	return func(job string) {
		p.change(func() {
			if j := p.jobs[job]; j != nil {
				f(j)
			}
		})
	}
}

func decode[T any](p *Plane, b []byte) (v T) {
	if err := json.Unmarshal(b, &v); err != nil {
		p.t.Errorf("a request or an answer of the control plane cannot be decoded: %v: %s", err, b)
	}
	return v
}

func (p *Plane) encode(answer *httptest.ResponseRecorder, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		p.t.Error(err)
	}
	answer.Body.Reset()
	answer.Body.Write(b)
	answer.Header().Del("Content-Length")
}

func (p *Plane) sawSession(_ *http.Request, _ string, body []byte, answer *httptest.ResponseRecorder) {
	in, s := decode[wire.SessionRequest](p, body), decode[wire.Session](p, answer.Body.Bytes())
	p.change(func() {
		if in.Report != nil { // the session carries the first heartbeat
			p.beats = append(p.beats, *in.Report)
		}
		s.Configuration = p.config
	})
	p.encode(answer, s)
}

func (p *Plane) sawBeat(_ *http.Request, _ string, body []byte, answer *httptest.ResponseRecorder) {
	in, out := decode[wire.SessionHeartbeat](p, body), decode[wire.SessionStatus](p, answer.Body.Bytes())
	p.change(func() {
		p.beats = append(p.beats, in)
		if out.Configuration = p.config; p.config != nil && p.config.Revision == in.Configuration {
			out.Configuration = nil
		}
	})
	p.encode(answer, out)
}

func (p *Plane) sawClaim(_ *http.Request, _ string, body []byte, answer *httptest.ResponseRecorder) {
	if answer.Code == http.StatusNoContent {
		return
	}
	in, out := decode[wire.ClaimRequest](p, body), decode[wire.Claim](p, answer.Body.Bytes())
	p.change(func() {
		p.claims++
		if j := p.jobs[out.Job]; j != nil {
			j.Claimed, j.Epoch, j.ByName = true, out.Epoch, in.Job != ""
			j.Finish, j.Died = nil, nil
		}
	})
}

// sawStart replaces the control plane's spec with the test's.
func (p *Plane) sawStart(r *http.Request, id string, _ []byte, answer *httptest.ResponseRecorder) {
	p.mu.Lock()
	j, tamper, chain := p.jobs[id], p.tamper, p.keySets
	p.mu.Unlock()
	if j == nil {
		return
	}
	out := decode[wire.Started](p, answer.Body.Bytes())
	env := decode[dsse.Envelope](p, out.Envelope)
	payload, err := env.DecodeB64Payload()
	if err != nil {
		p.t.Error(err)
		return
	}
	made, spec := decode[events.JobSpec](p, payload), j.Spec
	spec.Job, spec.Runner, spec.Epoch = or(spec.Job, made.Job), or(spec.Runner, made.Runner), or(spec.Epoch, made.Epoch)
	spec.IssuedAt, spec.ExpiresAt = or(spec.IssuedAt, made.IssuedAt), or(spec.ExpiresAt, made.ExpiresAt)
	if out.Envelope, err = p.signer.Sign(r.Context(), spec); err != nil {
		p.t.Error(err)
		return
	}
	if tamper != nil {
		out.Envelope = tamper(spec, out.Envelope)
	}
	for _, set := range chain {
		out.KeySets = append(out.KeySets, set)
	}
	p.encode(answer, out)
}

func or[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}

// sawFinish also compares the reported size and checksum of the log with the stored log.
func (p *Plane) sawFinish(_ *http.Request, id string, body []byte, _ *httptest.ResponseRecorder) {
	in := decode[wire.FinishRequest](p, body)
	p.mu.Lock()
	j := p.jobs[id]
	p.mu.Unlock()
	if j == nil {
		return
	}
	if log := p.log(id); in.Log.Size != int64(len(log)) || in.Log.CRC32 != crc32.ChecksumIEEE(log) {
		p.t.Errorf("job %s: the log has %d bytes and the CRC-32 %d, but the report has %+v", id, len(log), crc32.ChecksumIEEE(log), in.Log)
	}
	p.change(func() {
		j.Finish = &in
		j.Finishes++
	})
}

func (p *Plane) sawDeath(_ *http.Request, id string, body []byte, _ *httptest.ResponseRecorder) {
	in := decode[wire.DiedRequest](p, body)
	p.change(func() {
		if j := p.jobs[id]; j != nil {
			j.Died = &in
		}
	})
}
