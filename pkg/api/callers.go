package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/pkg/access"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
)

// CallerLimits holds the limits of one token, of one org, and of the wrong tokens of one
// address. A zero field means the default. A fleet of agents, the CLI and a dashboard
// stay far below the defaults.
type CallerLimits struct {
	Rate, Burst           int // requests a second, and the largest burst after a pause; 0: 300, 1,000
	Requests              int // requests answered at the same time, without long polls; 0: 200
	Waits                 int // long polls at the same time; 0: 500
	OrgRate, OrgBurst     int // requests a second of the people and programs of an org, and the largest burst after a pause; 0: 600, 2,000
	OrgRequests           int // requests of an org's people and programs, and of its agents, handled at the same time; further ones wait; 0: 16
	WrongRate, WrongBurst int // wrong tokens a second from one address, and the largest burst after a pause; 0: 10, 100
}

func (l CallerLimits) orDefault() CallerLimits {
	for _, f := range []struct {
		limit *int
		value int
	}{{&l.Rate, 300}, {&l.Burst, 1000}, {&l.Requests, 200}, {&l.Waits, 500}, {&l.OrgRate, 600}, {&l.OrgBurst, 2000}, {&l.OrgRequests, 16}, {&l.WrongRate, 10}, {&l.WrongBurst, 100}} {
		if *f.limit == 0 {
			*f.limit = f.value
		}
	}
	return l
}

// The number of tokens, orgs and addresses that Callers remembers. It forgets the least
// recently seen ones first. Each takes about 200 bytes.
const (
	callersKept   = 10_000
	orgsKept      = 10_000
	addressesKept = 1_000
)

// orgWait is how long a request waits for the other requests of its org, if these are as many as can be answered at once.
const orgWait = 10 * time.Second

// Callers limits the requests of each token and of each org, and throttles wrong tokens by
// the address that sends them. Its limits hold for one process. A nil *Callers has no
// limits. Safe for concurrent use.
type Callers struct {
	limits CallerLimits
	now    func() time.Time
	log    *slog.Logger

	mu        sync.Mutex
	callers   *simplelru.LRU[string, *asking] // by the hash of the token
	orgs      *simplelru.LRU[share, *sharing]
	addresses *simplelru.LRU[netip.Prefix, *guessing]
	forgotten int // wrong tokens since the last report, from addresses that were dropped
}

// asking counts the current requests of a caller. The mutex of Callers guards it.
type asking struct {
	rate            *rate.Limiter
	requests, waits int
}

// sharing is what the callers of an org share.
type sharing struct {
	rate *rate.Limiter
	gate *semaphore.Weighted // one for each request that is being handled, in the order of arrival
	busy int                 // requests that are being handled or wait for the gate; the mutex of Callers guards it
}

// guessing is an address that sends wrong tokens.
type guessing struct {
	rate    *rate.Limiter
	wrong   int           // wrong tokens since the last report
	looking chan struct{} // has capacity 1, so that one token is looked up at a time
}

// NewCallers returns Callers whose Report writes to log.
func NewCallers(l CallerLimits, now func() time.Time, log *slog.Logger) *Callers {
	c := &Callers{limits: l.orDefault(), now: now, log: log}
	var err, err2, err3 error
	c.orgs, err3 = simplelru.NewLRU[share, *sharing](orgsKept, nil)
	c.callers, err = simplelru.NewLRU[string, *asking](callersKept, nil)
	c.addresses, err2 = simplelru.NewLRU(addressesKept, func(_ netip.Prefix, g *guessing) { c.forgotten += g.wrong })
	if err != nil || err2 != nil || err3 != nil {
		panic("api: the number of callers to remember is not positive")
	}
	return c
}

// asker is the authenticated sender of a request.
type asker struct {
	token string
	share
}

// share selects what callers of an org share. An org without a name has none: the request names a job, and its token alone limits it.
type share struct {
	org    fairlead.OrgID
	person bool // the people and programs of the org, and not its agents
}

// enter counts a request, or a long poll, of a valid token until the caller calls leave. It returns a refusal if the token or its org
// exceeds a limit.
func (c *Callers) enter(by asker, waits bool, id string) (leave func(), refusal *problem) {
	if c == nil {
		return func() {}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.asking(by.token)
	if after := wait(a.rate, c.now()); after > 0 {
		return nil, limited(fairlead.CodeTooManyRequests, limitRate, fmt.Sprintf("this token sends more than %d requests a second", c.limits.Rate), c.limits.Rate, after, id)
	}
	if by.person {
		if after := wait(c.sharing(by.share).rate, c.now()); after > 0 {
			return nil, limited(fairlead.CodeTooManyRequests, limitOrgRate, fmt.Sprintf("the tokens and logins of this org send more than %d requests a second", c.limits.OrgRate), c.limits.OrgRate, after, id)
		}
	}
	count, most := &a.requests, c.limits.Requests
	refusal = limited(fairlead.CodeTooManyAtOnce, limitAtOnce, fmt.Sprintf("%d requests of this token are being answered, as many as can be at once", most), most, time.Second, id)
	if waits {
		count, most = &a.waits, c.limits.Waits
		refusal = limited(fairlead.CodeTooManyWaits, limitWaits, fmt.Sprintf("%d requests of this token wait for news, as many as can at once", most), most, time.Second, id)
	}
	if *count >= most {
		return nil, refusal
	}
	*count++
	return c.leaving(count), nil
}

// turn returns when the request, whose body was read, may be handled: after earlier requests of its org, if these are as many as can be
// handled at once. So a flood of one org waits in a queue of its own, and not for the table, where the other orgs would wait behind it.
// The caller calls leave after the handler.
func (c *Callers) turn(ctx context.Context, by share, id string) (leave func(), refusal *problem) {
	if c == nil || by.org == "" {
		return func() {}, nil
	}
	c.mu.Lock()
	o := c.sharing(by)
	o.busy++
	c.mu.Unlock()
	left := c.leaving(&o.busy)
	ctx, cancel := context.WithTimeout(ctx, orgWait)
	defer cancel()
	if err := o.gate.Acquire(ctx, 1); err != nil {
		left()
		return nil, limited(fairlead.CodeTooManyAtOnce, limitOrgAtOnce, fmt.Sprintf("%d requests of this org are being handled, as many as can be at once, and more wait", c.limits.OrgRequests), c.limits.OrgRequests, time.Second, id)
	}
	return func() {
		o.gate.Release(1)
		left()
	}, nil
}

// leaving returns a function that takes one from the count.
func (c *Callers) leaving(count *int) func() {
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		*count--
	}
}

// asking returns the counts of a token. The caller holds the mutex.
func (c *Callers) asking(token string) *asking {
	key := identity.Hash(token)
	a, ok := c.callers.Get(key)
	if !ok {
		a = &asking{rate: rate.NewLimiter(rate.Limit(c.limits.Rate), c.limits.Burst)}
		c.callers.Add(key, a)
	}
	return a
}

// sharing returns what callers of an org share. The caller holds the mutex.
func (c *Callers) sharing(by share) *sharing {
	o, ok := c.orgs.Get(by)
	if !ok {
		o = &sharing{rate: rate.NewLimiter(rate.Limit(c.limits.OrgRate), c.limits.OrgBurst), gate: semaphore.NewWeighted(int64(c.limits.OrgRequests))}
		c.orgs.Add(by, o)
	}
	return o
}

// The names of the limits of callers, as in --limit and in the details of refusals.
const (
	limitRate      = "requests-per-second"
	limitAtOnce    = "requests-at-once"
	limitWaits     = "waits"
	limitOrgRate   = "org-requests-per-second"
	limitOrgAtOnce = "org-requests-at-once"
)

// usage returns the limits of the caller with what it uses of each; none if c is nil. The rates show how many requests of the burst
// are used up.
func (c *Callers) usage(by asker) []wire.Limit {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, o := c.asking(by.token), c.sharing(by.share)
	return []wire.Limit{
		{Name: limitOrgRate, Of: wire.LimitOfOrg, Limit: c.limits.OrgRate},
		{Name: "org-requests-burst", Of: wire.LimitOfOrg, Limit: c.limits.OrgBurst, Used: used(o.rate, c.now())},
		{Name: limitOrgAtOnce, Of: wire.LimitOfOrg, Limit: c.limits.OrgRequests, Used: new(o.busy)},
		{Name: limitRate, Of: wire.LimitOfToken, Limit: c.limits.Rate},
		{Name: "requests-burst", Of: wire.LimitOfToken, Limit: c.limits.Burst, Used: used(a.rate, c.now())},
		{Name: limitAtOnce, Of: wire.LimitOfToken, Limit: c.limits.Requests, Used: new(a.requests)},
		{Name: limitWaits, Of: wire.LimitOfToken, Limit: c.limits.Waits, Used: new(a.waits)},
	}
}

// used returns how many events of the burst are used up.
func used(l *rate.Limiter, now time.Time) *int {
	return new(max(0, l.Burst()-int(l.TokensAt(now))))
}

// wrong counts a wrong token from an address. If the address has sent too many wrong
// tokens, it returns a refusal to send in place of the usual answer; otherwise nil.
func (c *Callers) wrong(from netip.Prefix, id string) *problem {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g, ok := c.addresses.Get(from)
	if !ok {
		g = &guessing{rate: rate.NewLimiter(rate.Limit(c.limits.WrongRate), c.limits.WrongBurst), looking: make(chan struct{}, 1)}
		c.addresses.Add(from, g)
	}
	g.wrong++
	if after := wait(g.rate, c.now()); after > 0 {
		p := throttled(fairlead.CodeTooManyWrongTokens, "too many wrong tokens come from this address, and this one is wrong, too", after, id)
		p.headers.Set("Connection", "close") // the sender needs a new connection for the next token
		return p
	}
	return nil
}

// look waits until a token may be looked up in the table. The caller calls leave after
// the lookup. If an address has sent too many wrong tokens, the server looks up its
// tokens one at a time, in the order of arrival, except tokens that were valid before.
// So a valid token from this address waits for a moment, but it is not refused. The
// only error is the error of ctx.
func (c *Callers) look(ctx context.Context, from netip.Prefix, token string) (leave func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	c.mu.Lock()
	g, ok := c.addresses.Peek(from)
	free := !ok || g.rate.TokensAt(c.now()) >= 1 || c.callers.Contains(identity.Hash(token))
	c.mu.Unlock()
	if free {
		return func() {}, nil
	}
	select {
	case g.looking <- struct{}{}:
		return func() { <-g.looking }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Report logs one line for each address that has sent wrong tokens since the last
// report. The server calls it about once a minute.
func (c *Callers) Report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range c.addresses.Keys() {
		if g, _ := c.addresses.Peek(from); g.wrong > 0 {
			c.log.Warn("wrong tokens came", "from", from, "tokens", g.wrong)
			g.wrong = 0
		}
	}
	if c.forgotten > 0 {
		c.log.Warn("wrong tokens came", "from", "other addresses", "tokens", c.forgotten)
		c.forgotten = 0
	}
}

// wait takes one event from the limiter and returns 0. If the limiter permits no
// event now, wait returns the time until it permits the next event.
func wait(l *rate.Limiter, now time.Time) time.Duration {
	r := l.ReserveN(now, 1)
	after := r.DelayFrom(now)
	if after > 0 {
		r.CancelAt(now)
	}
	return after
}

// limited is throttled for a limit that the answer names, with its value.
func limited(code fairlead.Code, limit, detail string, most int, after time.Duration, id string) *problem {
	p := throttled(code, detail, after, id)
	p.Details = map[string]string{"limit": limit, "most": strconv.Itoa(most)}
	return p
}

// throttled returns a refusal that asks the caller to repeat the request after a
// pause.
func throttled(code fairlead.Code, detail string, after time.Duration, id string) *problem {
	p := coded(code, detail, id)
	p.Hint = "Repeat it after the seconds that Retry-After says."
	p.headers = http.Header{"Retry-After": {strconv.Itoa(int((after + time.Second - 1) / time.Second))}}
	return p
}

// visit describes the sender of a request.
type visit struct {
	from  netip.Prefix
	token bool // the request has an Authorization header
}

type visitKey struct{}

func visitOf(r *http.Request) visit {
	return visit{from: addressOf(r.RemoteAddr), token: r.Header.Get("Authorization") != ""}
}

// look is Callers.look for the address of a request.
func (s *server) look(ctx context.Context, token string) (leave func(), err error) {
	v, _ := ctx.Value(visitKey{}).(visit)
	return s.Callers.look(ctx, v.from, token)
}

// user returns the principal of an API token.
func (s *server) user(ctx context.Context, token string) (access.Principal, error) {
	leave, err := s.look(ctx, token)
	if err != nil {
		return access.Principal{}, err
	}
	defer leave()
	return s.Control.AuthenticateUser(ctx, token)
}

// unknown returns the refusal of an unauthenticated request if its address has sent
// too many wrong tokens; nil means the usual refusal. It counts neither a token that
// was valid before nor a request without a token. The usual refusal makes their
// senders get a new token, and these senders may share an address with an attacker
// who guesses tokens.
func (s *server) unknown(ctx context.Context, p *problem, err error) *problem {
	v, _ := ctx.Value(visitKey{}).(visit)
	recognise(ctx, false)
	if identity.WasGood(err) || !v.token && p.code() == fairlead.CodeUnauthenticated {
		return nil
	}
	return s.Callers.wrong(v.from, p.RequestID)
}
