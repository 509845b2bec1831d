package api

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

const (
	rateSpan     = 10 * time.Second // a limit of requests a second holds for the mean of a span
	shareEvery   = time.Second      // how often a process shares its number
	unsharedMost = 5                // requests of a process in a span that it does not share, so that a quiet org costs no write
)

// DefaultOrgRate is how many requests a second the people and programs of an org may send to a control plane of many processes.
const DefaultOrgRate = 200

// CountRequests notes how many requests of an org a process has taken in a span of time that ends at until, and returns the sum of
// all processes.
type CountRequests func(ctx context.Context, org fairlead.OrgID, span int64, process string, number int, until time.Time) (sum int, err error)

// OrgRates limits the requests of each org to a control plane of many processes that share only the table, such as functions. Each
// process counts its own, and gets the sum of all about once a second. So the limit is approximate: more requests pass until the sums
// are known. If the sum cannot be read, requests pass. A nil *OrgRates has no limit. Safe for concurrent use.
type OrgRates struct {
	limit   int // requests a second
	process string
	count   CountRequests
	now     func() time.Time
	log     *slog.Logger

	mu   sync.Mutex
	orgs *simplelru.LRU[fairlead.OrgID, *orgRate]
}

// orgRate is what a process knows of an org's requests in the present span.
type orgRate struct {
	span        int64
	own, others int
	shared      time.Time // when own was shared last
}

// NewOrgRates returns OrgRates of at most limit requests a second; 0: DefaultOrgRate. process identifies this process among those that
// count with it.
func NewOrgRates(limit int, process string, count CountRequests, now func() time.Time, log *slog.Logger) *OrgRates {
	if limit == 0 {
		limit = DefaultOrgRate
	}
	orgs, err := simplelru.NewLRU[fairlead.OrgID, *orgRate](orgsKept, nil)
	if err != nil {
		panic("api: the number of orgs to remember is not positive")
	}
	return &OrgRates{limit: limit, process: process, count: count, now: now, log: log, orgs: orgs}
}

// of returns what is known of the org in the present span, and when the span ends. The caller holds the mutex.
func (r *OrgRates) of(org fairlead.OrgID, now time.Time) (o *orgRate, until time.Time) {
	span := now.UnixMilli() / rateSpan.Milliseconds()
	o, ok := r.orgs.Get(org)
	if !ok || o.span != span {
		o = &orgRate{span: span}
		r.orgs.Add(org, o)
	}
	return o, time.UnixMilli((span + 1) * rateSpan.Milliseconds())
}

// most is how many requests the limit permits in a span.
func (r *OrgRates) most() int { return r.limit * int(rateSpan/time.Second) }

// enter counts a request of a person or a program of the org. It returns a refusal if the org exceeds its limit.
func (r *OrgRates) enter(ctx context.Context, org fairlead.OrgID, id string) *problem {
	if r == nil {
		return nil
	}
	now := r.now()
	r.mu.Lock()
	o, until := r.of(org, now)
	share := o.own+1 > unsharedMost && now.Sub(o.shared) >= shareEvery
	span, number := o.span, o.own+1
	if share {
		o.shared = now
	}
	r.mu.Unlock()
	others := -1
	if share {
		sum, err := r.count(ctx, org, span, r.process, number, until)
		if err != nil {
			r.log.Warn("cannot count the requests of an org with other processes; they pass", "org", org, "error", err)
		} else {
			others = max(0, sum-number)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.span != span {
		return nil // the request came in the span before
	}
	if others >= 0 {
		o.others = others
	}
	if o.own+o.others >= r.most() {
		return limited(fairlead.CodeTooManyRequests, limitOrgRate, fmt.Sprintf("the tokens and logins of this org send more than %d requests a second", r.limit), r.limit, until.Sub(now), id)
	}
	o.own++
	return nil
}

// usage returns the limit of the org, with the requests a second of the present span that this process knows of; none if r is nil.
func (r *OrgRates) usage(org fairlead.OrgID) []wire.Limit {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o, _ := r.of(org, r.now())
	seconds := int(rateSpan / time.Second)
	return []wire.Limit{{Name: limitOrgRate, Of: wire.LimitOfOrg, Limit: r.limit, Used: new((o.own + o.others + seconds - 1) / seconds)}}
}
