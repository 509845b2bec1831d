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

// throttled checks that an answer is a 429 that says when to come back.
func throttled(t *testing.T, what string, res result, code string) {
	t.Helper()
	if res.StatusCode != http.StatusTooManyRequests || res.code(t) != code {
		t.Fatalf("%s is answered %d %s", what, res.StatusCode, short(res.body))
	}
	if p := res.problem(t); res.Header.Get("Retry-After") != "1" || p.Hint == "" {
		t.Errorf("%s: Retry-After is %q, the hint %q", what, res.Header.Get("Retry-After"), p.Hint)
	}
}

// another makes another API token.
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
		time.Sleep(time.Minute) // of the bubble: all may send as much as ever
		count := func() (n int, res result) {
			for ; n < 10*burst; n++ { // without a limit it would not end
				if res = p.send("GET", "/v1/apps", p.api, nil); res.StatusCode != 200 {
					return n, res
				}
			}
			return n, res
		}
		n, res := count()
		if n != burst {
			t.Errorf("%d requests are answered at once, and %d may be", n, burst)
		}
		throttled(t, "the next request", res, "too-many-requests")
		throttled(t, "one of the registry", p.send("GET", "/v2/", "basic:"+p.api, nil), "too-many-requests")
		for what, res := range map[string]result{"another token's": p.send("GET", "/v1/apps", other, nil),
			"an agent's":          p.send("POST", "/runner/v1/session/heartbeat", session, wire.SessionHeartbeat{Running: []string{}, Capacity: 1}),
			"one without a token": p.send("GET", "/v1/meta", "", nil)} {
			if res.StatusCode == http.StatusTooManyRequests {
				t.Errorf("%s request is refused for it: %s", what, short(res.body))
			}
		}
		time.Sleep(2 * time.Second) // of the bubble
		if n, _ := count(); n != 2*perSecond {
			t.Errorf("%d requests are answered 2 s later, and %d may be", n, 2*perSecond)
		}

		// The client comes back by itself, and learns nothing of it.
		c, err := client.New(p.url, p.api, client.Options{HTTP: p.http, PlainHTTP: true})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := c.ListApps(t.Context(), client.ListOptions{}); err != nil {
			t.Errorf("a client that was throttled: %v", err)
		}
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("it came back after %s, and was asked to after a second", waited)
		}
		p.shutDown()
	})
}

// 3,000 long polls of one token took 350 MB.
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
				t.Errorf("a request that does not wait is answered %d beside %s", res.StatusCode, w.name)
			}
			for _, ch := range polls {
				if res := <-ch; res.StatusCode != w.quiet {
					t.Errorf("%s is %d %s", w.name, res.StatusCode, short(res.body))
				}
			}
			if res := <-w.ask(p); res.StatusCode != w.quiet {
				t.Errorf("%s after the others is %d %s", w.name, res.StatusCode, short(res.body))
			}
			p.shutDown()
		})
	}
}

// Slow bodies with a token held what they liked of the server.
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
			t.Errorf("another token's is answered %d", res.StatusCode)
		}
		time.Sleep(16 * time.Second) // of the bubble: the bodies are given up
		if res := p.send("GET", "/v1/apps", p.api, nil); res.StatusCode != 200 {
			t.Errorf("a request after the others is answered %d", res.StatusCode)
		}
		p.shutDown()
	})
}

// 2,600 wrong tokens a second were looked up, and no log had a line of it. Who sends
// them may be behind the same proxy as everybody else.
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
				t.Fatalf("wrong token %d is answered %d %s", n, res.StatusCode, short(res.body))
			}
		}
		for n := range 10 {
			res := guess(n)
			throttled(t, "one more wrong token", res, "too-many-wrong-tokens")
			if !res.Close {
				t.Error("who sends it keeps the connection")
			}
		}
		for what, test := range map[string]struct {
			res    result
			status int
		}{
			"a good token":                           {p.send("GET", "/v1/apps", p.api, nil), 200},
			"an agent":                               {p.send("POST", "/runner/v1/session/heartbeat", session, wire.SessionHeartbeat{Running: []string{}, Capacity: 1}), 200},
			"an agent whose session has ended":       {p.send("POST", "/runner/v1/session/heartbeat", ended, wire.SessionHeartbeat{Running: []string{}, Capacity: 1}), 401},
			"who does not know that it was revoked":  {p.send("GET", "/v1/apps", revoked, nil), 401},
			"a registry client that asks what to do": {p.send("GET", "/v2/", "", nil), 401},
			"who has no token":                       {p.send("GET", "/v1/apps", "", nil), 401},
		} {
			if test.res.StatusCode != test.status {
				t.Errorf("%s is answered %d from that address, want %d: %s", what, test.res.StatusCode, test.status, short(test.res.body))
			}
		}
		p.session("local") // an agent gets in

		p.callers.Report()
		p.callers.Report()
		var lines []string
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, "wrong tokens") {
				lines = append(lines, line)
			}
		}
		if len(lines) != 1 || !strings.Contains(lines[0], "tokens=40") || strings.Contains(lines[0], "fla_") {
			t.Errorf("the log has %q", lines)
		}
		time.Sleep(time.Minute) // of the bubble
		if res := guess(0); res.StatusCode != 401 {
			t.Errorf("a wrong token a minute later is answered %d", res.StatusCode)
		}
		p.shutDown()
	})
}

// slowTokens is a table in which it takes a second to look an API token up.
type slowTokens struct {
	engine.Engine
	mu        sync.Mutex
	now, most int // lookups: now, and most at once
}

func (e *slowTokens) Get(ctx context.Context, k engine.Key) (engine.Item, error) {
	if !strings.HasPrefix(k.Partition, "TOKEN#") {
		return e.Engine.Get(ctx, k)
	}
	e.mu.Lock()
	e.now++
	e.most = max(e.most, e.now)
	e.mu.Unlock()
	<-time.After(time.Second) // of the bubble
	e.mu.Lock()
	e.now--
	e.mu.Unlock()
	return e.Engine.Get(ctx, k)
}

// Each wrong token was looked up in the table before it was refused: an address took
// as many lookups at once as it had connections. Good tokens behind the same proxy
// are no more refused for that than before.
func TestLookupsOfWrongTokensAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, wrong = 10, 20
		ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		e := &slowTokens{Engine: enginetest.Memory()}
		p := newPlaneOn(t, e, ln, &http.Transport{DialContext: ln.dial}, limited(api.CallerLimits{WrongRate: 1, WrongBurst: burst}))
		fresh := p.another("fresh") // no request has had it yet
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
		for range burst { // which are looked up elsewhere
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
			t.Errorf("a token that was good before is answered %d after %s", res.StatusCode, time.Since(began))
		}
		if res := <-ask(fresh); res.StatusCode != 200 {
			t.Errorf("the first request with a good token is answered %d: %s", res.StatusCode, short(res.body))
		}
		for _, ch := range answers {
			if res := <-ch; res.StatusCode != 401 && res.StatusCode != 429 {
				t.Errorf("a wrong token is answered %d", res.StatusCode)
			}
		}
		if e.most > 2 { // one of those that are wrong, and that of the known token
			t.Errorf("%d tokens are looked up at once", e.most)
		}
		p.shutDown()
	})
}

// From many addresses come wrong tokens as well; what is remembered of them is
// bounded, and nothing is lost of how many there were.
func TestWrongTokensFromEverywhereAreCounted(t *testing.T) {
	p := newPlane(t, limited(api.CallerLimits{}))
	const addresses = 3000
	for n := range addresses {
		r := httptest.NewRequest("GET", "/v1/apps", nil)
		r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:4000", n/250, n%250)
		if n%2 == 1 { // of one network: one customer has 2^64 addresses of IPv6
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
				t.Errorf("%d tokens came from one network: %s", addresses/2, line)
			}
		}
	}
	if tokens != addresses || lines > 1001 {
		t.Errorf("%d tokens in %d lines, and %d were sent", tokens, lines, addresses)
	}
}
