package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/pkg/api"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/store/engine"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

func limited(l api.CallerLimits) bounded { return bounded{limits: []api.CallerLimits{l}} }

// throttled checks that an answer is a 429 with the code, a Retry-After header and a
// hint.
func throttled(t *testing.T, what string, res result, code string) {
	t.Helper()
	if res.StatusCode != http.StatusTooManyRequests || res.code(t) != code {
		t.Fatalf("%s: answer %d %s", what, res.StatusCode, short(res.body))
	}
	if p := res.problem(t); res.Header.Get("Retry-After") != "1" || p.Hint == "" {
		t.Errorf("%s: Retry-After is %q, the hint %q", what, res.Header.Get("Retry-After"), p.Hint)
	}
}

// another creates another API token.
func (p *plane) another(name string) string {
	p.t.Helper()
	return call[wire.Token](p, "POST", "/v1/tokens", p.api, wire.CreateTokenRequest{Name: name}).Token
}

func TestRequestRateOfATokenIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, perSecond = 20, 5
		p := newBubblePlane(t, limited(api.CallerLimits{Rate: perSecond, Burst: burst}))
		other := p.another("other")
		session := p.session("local")
		time.Sleep(time.Minute) // bubble time: the burst is available again
		count := func() (n int, res result) {
			for ; n < 10*burst; n++ { // ends even if there is no limit
				if res = p.send("GET", "/v1/apps", p.api, nil); res.StatusCode != 200 {
					return n, res
				}
			}
			return n, res
		}
		n, res := count()
		if n != burst {
			t.Errorf("%d requests are answered at once, want %d", n, burst)
		}
		throttled(t, "the next request", res, "too-many-requests")
		throttled(t, "a request to the registry", p.send("GET", "/v2/", "basic:"+p.api, nil), "too-many-requests")
		for what, res := range map[string]result{"another token's": p.send("GET", "/v1/apps", other, nil),
			"an agent's":          p.send("POST", "/runner/v1/session/heartbeat", session, wire.SessionHeartbeat{Running: []string{}, Capacity: 1}),
			"one without a token": p.send("GET", "/v1/meta", "", nil)} {
			if res.StatusCode == http.StatusTooManyRequests {
				t.Errorf("%s request is throttled, too: %s", what, short(res.body))
			}
		}
		time.Sleep(2 * time.Second) // bubble time
		if n, _ := count(); n != 2*perSecond {
			t.Errorf("%d requests are answered 2 s later, want %d", n, 2*perSecond)
		}

		// The client retries, so its caller does not see the limit.
		c, err := client.New(p.url, p.api, client.Options{HTTP: p.http, PlainHTTP: true})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := c.ListApps(t.Context(), client.ListOptions{}); err != nil {
			t.Errorf("throttled client: %v", err)
		}
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("the client retried after %s, want at least the requested second", waited)
		}
		p.shutDown()
	})
}

// Formerly 3,000 long polls of one token took 350 MB.
func TestLongPollsOfATokenAreLimited(t *testing.T) {
	for i := range 5 {
		synctest.Test(t, func(t *testing.T) {
			const most = 2
			p := newBubblePlane(t, limited(api.CallerLimits{Waits: most, Requests: 1}))
			w := waits(p)[i]
			var polls []<-chan result
			for range most {
				polls = append(polls, w.ask(p))
				synctest.Wait()
			}
			throttled(t, w.name, <-w.ask(p), "too-many-waits")
			if res := p.send("GET", "/v1/apps", p.api, nil); res.StatusCode != 200 {
				t.Errorf("a request without a wait is answered %d during %s", res.StatusCode, w.name)
			}
			for _, ch := range polls {
				if res := <-ch; res.StatusCode != w.quiet {
					t.Errorf("%s: %d %s", w.name, res.StatusCode, short(res.body))
				}
			}
			if res := <-w.ask(p); res.StatusCode != w.quiet {
				t.Errorf("%s after the others: %d %s", w.name, res.StatusCode, short(res.body))
			}
			p.shutDown()
		})
	}
}

// Formerly one token could hold any number of requests open with slow bodies.
func TestConcurrentRequestsOfATokenAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		p := newBubblePlane(t, limited(api.CallerLimits{Requests: most}))
		other := p.another("other")
		for range most {
			c, err := p.http.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := fmt.Fprintf(c, "POST /v1/installs HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", p.api); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		throttled(t, "the next request", p.send("GET", "/v1/apps", p.api, nil), "too-many-at-once")
		if res := p.send("GET", "/v1/apps", other, nil); res.StatusCode != 200 {
			t.Errorf("another token's request is answered %d", res.StatusCode)
		}
		time.Sleep(16 * time.Second) // bubble time: the bodies time out
		if res := p.send("GET", "/v1/apps", p.api, nil); res.StatusCode != 200 {
			t.Errorf("a request after the others is answered %d", res.StatusCode)
		}
		p.shutDown()
	})
}

// Formerly the server looked up 2,600 wrong tokens a second and logged nothing. The
// attacker may be behind the same proxy as all other callers, so good tokens from the
// same address must still work.
func TestWrongTokensAreThrottledAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, perSecond = 30, 2
		p := newBubblePlane(t, limited(api.CallerLimits{WrongRate: perSecond, WrongBurst: burst}))
		session, ended := p.session("local"), p.session("local")
		revoked := p.another("revoked")
		p.send("DELETE", "/v1/tokens/revoked", p.api, nil)
		call[wire.SessionStatus](p, "POST", "/runner/v1/session/heartbeat", ended, wire.SessionHeartbeat{Running: []string{}, Ending: true})

		guess := func(n int) result {
			token := identity.NewToken(identity.PrefixAPI)
			switch n % 5 {
			case 0:
				return p.send("GET", "/v2/", "basic:"+token, nil)
			case 1:
				return p.send("POST", "/runner/v1/enrol", "", wire.EnrolRequest{Token: token, PublicKey: make([]byte, 32)})
			case 2:
				return p.send("POST", "/runner/v1/claims", session[:len(session)-3]+"abc", wire.ClaimRequest{})
			case 3:
				return p.send("GET", "/runner/v1/state/ins_1/web", "basic:"+token, nil)
			}
			return p.send("GET", "/v1/apps", token, nil)
		}
		for n := range burst {
			if res := guess(n); res.StatusCode != 401 {
				t.Fatalf("wrong token %d: answer %d %s", n, res.StatusCode, short(res.body))
			}
		}
		for n := range 10 {
			res := guess(n)
			throttled(t, "one more wrong token", res, "too-many-wrong-tokens")
			if !res.Close {
				t.Error("the server keeps the connection of the throttled caller")
			}
		}
		for what, test := range map[string]struct {
			res    result
			status int
		}{
			"a good token":                          {p.send("GET", "/v1/apps", p.api, nil), 200},
			"an agent":                              {p.send("POST", "/runner/v1/session/heartbeat", session, wire.SessionHeartbeat{Running: []string{}, Capacity: 1}), 200},
			"an agent whose session has ended":      {p.send("POST", "/runner/v1/session/heartbeat", ended, wire.SessionHeartbeat{Running: []string{}, Capacity: 1}), 401},
			"a revoked token that was valid before": {p.send("GET", "/v1/apps", revoked, nil), 401},
			"a registry client without a token":     {p.send("GET", "/v2/", "", nil), 401},
			"a request without a token":             {p.send("GET", "/v1/apps", "", nil), 401},
		} {
			if test.res.StatusCode != test.status {
				t.Errorf("%s from that address: answer %d, want %d: %s", what, test.res.StatusCode, test.status, short(test.res.body))
			}
		}
		p.session("local") // an agent can still enrol and open a session

		p.callers.Report()
		p.callers.Report()
		var lines []string
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, "wrong tokens") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], "tokens=40") || strings.Contains(lines[0], "fla_") {
			t.Errorf("log lines about wrong tokens: %q", lines)
		}
		time.Sleep(time.Minute) // bubble time
		if res := guess(0); res.StatusCode != 401 {
			t.Errorf("a wrong token a minute later is answered %d", res.StatusCode)
		}
		p.shutDown()
	})
}

// slow is a table that takes one second to read the partitions that is selects.
type slow struct {
	engine.Engine
	is        func(partition string) bool
	mu        sync.Mutex
	now, most int // concurrent reads of them: now, and the maximum so far
}

func (e *slow) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	e.wait(k.Partition)
	return e.Engine.Get(ctx, k)
}

func (e *slow) Query(ctx context.Context, q engine.Query) (engine.Page, error) {
	e.wait(q.Partition)
	return e.Engine.Query(ctx, q)
}

func (e *slow) wait(partition string) {
	if !e.is(partition) {
		return
	}
	e.mu.Lock()
	e.now++
	e.most = max(e.most, e.now)
	e.mu.Unlock()
	<-time.After(time.Second) // bubble time
	e.mu.Lock()
	e.now--
	e.mu.Unlock()
}

// Formerly the server looked up each wrong token before it refused it, so an address
// caused as many concurrent lookups as it had connections. Good tokens behind the
// same proxy must still not be refused.
func TestLookupsOfWrongTokensAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, wrong = 10, 20
		ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		e := &slow{Engine: enginetest.Memory(), is: func(partition string) bool { return strings.HasPrefix(partition, "TOKEN#") }}
		p := newPlaneOn(t, e, ln, &http.Transport{DialContext: ln.dial}, limited(api.CallerLimits{WrongRate: 1, WrongBurst: burst}))
		fresh := p.another("fresh") // not used by any request yet
		ask := func(token string) <-chan result {
			ch := make(chan result, 1)
			go func() {
				res, err := p.try(t.Context(), "GET", "/v1/apps", token, nil)
				if err != nil {
					t.Error(err)
				}
				ch <- res
			}()
			return ch
		}
		p.send("GET", "/v1/apps", p.api, nil)
		for range burst { // enrolment tokens: the table does not delay their lookups
			p.send("POST", "/runner/v1/enrol", "", wire.EnrolRequest{Token: "wrong", PublicKey: make([]byte, 32)})
		}
		e.most = 0
		var answers []<-chan result
		for range wrong {
			answers = append(answers, ask(identity.NewToken(identity.PrefixAPI)))
		}
		synctest.Wait()
		began := time.Now()
		if res := <-ask(p.api); res.StatusCode != 200 || time.Since(began) > time.Second {
			t.Errorf("a known good token is answered %d after %s", res.StatusCode, time.Since(began))
		}
		if res := <-ask(fresh); res.StatusCode != 200 {
			t.Errorf("the first request with a good token is answered %d: %s", res.StatusCode, short(res.body))
		}
		for _, ch := range answers {
			if res := <-ch; res.StatusCode != 401 && res.StatusCode != 429 {
				t.Errorf("a wrong token is answered %d", res.StatusCode)
			}
		}
		if e.most > 2 { // one lookup of a wrong token, and that of the known token
			t.Errorf("%d concurrent lookups of tokens", e.most)
		}
		p.shutDown()
	})
}

// The server remembers a bounded number of addresses that send wrong tokens, but it
// counts the tokens of all addresses.
func TestWrongTokensFromEverywhereAreCounted(t *testing.T) {
	p := newPlane(t, limited(api.CallerLimits{}))
	const addresses = 3000
	for n := range addresses {
		r := httptest.NewRequest("GET", "/v1/apps", nil)
		r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:4000", n/250, n%250)
		if n%2 == 1 { // in one network: one customer has 2^64 IPv6 addresses
			r.RemoteAddr = fmt.Sprintf("[2001:db8::%x]:4000", n)
		}
		r.Header.Set("Authorization", "Bearer "+identity.NewToken(identity.PrefixAPI))
		p.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	p.callers.Report()
	lines, tokens := 0, 0
	for line := range strings.Lines(p.log.String()) {
		if _, count, ok := strings.Cut(line, "tokens="); ok {
			var n int
			if _, err := fmt.Sscan(count, &n); err != nil {
				t.Fatal(err)
			}
			tokens += n
			lines++
			if strings.Contains(line, "2001:db8::/64") && n != addresses/2 {
				t.Errorf("one network sent %d tokens, the log has: %s", addresses/2, line)
			}
		}
	}
	if tokens != addresses || lines > 1001 {
		t.Errorf("the log counts %d tokens in %d lines, want %d tokens", tokens, lines, addresses)
	}
}
