package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/blob/blobtest"
	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/identity"
	"github.com/fairlead/fairlead/pkg/joblog/joblogtest"
	"github.com/fairlead/fairlead/pkg/queue/memory"
	"github.com/fairlead/fairlead/pkg/seal"
	"github.com/fairlead/fairlead/pkg/store"
	"github.com/fairlead/fairlead/pkg/store/enginetest"
)

// route is what the requests of one route, or the other invocations of one function, used on the emulated stack.
// BenchmarkUsage of package awstest writes it.
type route struct {
	Count     int            `json:"count"`
	CPU       float64        `json:"cpu_ms"`
	Sent      int            `json:"sent"`
	Logged    int            `json:"logged"`
	Lines     int            `json:"lines"`
	Calls     map[string]int `json:"calls"`
	Events    int            `json:"events"`
	Writes    float64        `json:"writes"`
	Reads     float64        `json:"reads"`
	LogWrites float64        `json:"log_writes"`
	LogReads  float64        `json:"log_reads"`
}

// stacks is what BenchmarkUsage counts on the emulated stacks.
type stacks struct {
	Idle        map[string]route `json:"idle"`
	IdleSeconds float64          `json:"idle_seconds"`
	Polls       int              `json:"polls"`
	Deployed    map[string]route `json:"deployed"`
	Jobs        int              `json:"jobs"`
	Queue       int              `json:"queue"`
	Stored      int              `json:"stored"`
	Heartbeats  route            `json:"heartbeats"`
}

// stacksFile has the result of BenchmarkUsage.
const stacksFile = "aws-usage.json"

// The routes with a price of their own.
const (
	sessionsRoute  = "POST /runner/v1/sessions"
	heartbeatRoute = "POST /runner/v1/session/heartbeat"
	renewalRoute   = "POST /runner/v1/jobs/*/heartbeat"
	warmRoute      = "POST /runner/v1/warm-steps/*/job"
)

// callMS is the assumed time of a request from a function to a service in the same region, in milliseconds. AWS documents
// none. STS takes most of the time of a session.
var callMS = map[string]float64{"DYNAMODB": 5, "SQS": 10, "KMS": 10, "EVENTBRIDGE": 15, "S3": 30, "STS": 65, "ECR": 65,
	"STS GetCallerIdentity": 0, // a renewal waits for it and for AssumeRole at the same time
}

// coreShare is the part of a core that a function of functionMB gets: 1,769 MB have one core, as AWS documents. The assumption is
// that such a core is as fast as one of the machine that counted.
const coreShare = functionMB / 1769.

// ms returns the billed time of an invocation in milliseconds. Its requests to AWS are taken to follow each other.
func (r route) ms() float64 {
	sum := r.CPU / coreShare
	for call, n := range r.Calls {
		service, _, _ := strings.Cut(call, " ")
		each, ok := callMS[call]
		if !ok {
			each = callMS[service]
		}
		sum += float64(n) * each
	}
	return sum / float64(max(1, r.Count))
}

// usage returns the usage of an invocation by a request, or else by another source, without the table of logs.
func (r route) usage(request bool) usage {
	u := usage{Invokes: 1, GBSeconds: r.ms() / 1000 * functionMB / 1024}
	n := float64(max(1, r.Count))
	u.Writes, u.Reads, u.Events = r.Writes/n, r.Reads/n, float64(r.Events)/n
	u.LogGB = float64(r.Logged+r.Lines*eventBytes) / n / 1e9
	if request {
		u.Invokes, u.Requests = 0, 1
		u.OutGB = (float64(r.Sent)/n + headerBytes) / 1e9
		u.LogGB += accessLogBytes / 1e9
	}
	for call, count := range r.Calls {
		each := float64(count) / n
		switch service, what, _ := strings.Cut(call, " "); service {
		case "SQS":
			u.Queue += each
		case "KMS":
			u.KMS += each
		case "S3":
			switch what {
			case "PUT", "POST":
				u.Puts += each
			case "GET", "HEAD":
				u.Gets += each
			}
		}
	}
	return u
}

// of returns the usage of a request of the route.
func of(routes map[string]route, name string) (usage, error) {
	r, ok := routes[name]
	if !ok {
		return usage{}, fmt.Errorf("%s has no %s", stacksFile, name)
	}
	return r.usage(strings.Contains(name, " ")), nil
}

func (b *bench) readStacks() (s stacks, err error) {
	text, err := os.ReadFile(b.path("bench", stacksFile))
	if err != nil {
		return s, fmt.Errorf("%w; run `make bench-aws`", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", stacksFile, err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Deployed)) {
		r := s.Deployed[name]
		b.note("%6.2f a job  %4.0f ms  %s", float64(r.Count)/float64(s.Jobs), r.ms(), name)
	}
	return s, nil
}

// job returns the usage of a job that ends at once, in a deployment of four components. Not in it: renewals and heartbeats, which
// Minute has; waiting warm steps; the log, which BenchmarkJobLog counts; the sweep; and requests of people, who read. The records of
// the job and its deployment are kept without end: their storage is that of one month.
func (s stacks) job() usage {
	var sum usage
	for _, name := range slices.Sorted(maps.Keys(s.Deployed)) { // sorted, for the same sum each time
		r := s.Deployed[name]
		switch {
		case slices.Contains([]string{sessionsRoute, heartbeatRoute, renewalRoute, warmRoute, "sweep", "logindex"}, name) || strings.HasPrefix(name, "GET /v1/"):
			continue
		}
		sum = sum.plus(float64(r.Count), r.usage(strings.Contains(name, " ")))
		sum.Reads += r.LogReads
	}
	sum.Queue += float64(s.Queue)
	sum.KMS = float64(s.signatures()) + dataKeysOfAJob*float64(s.Jobs)
	sum.TableGB += float64(s.Stored) / 1e9 // a month
	return usage{}.plus(1/float64(s.Jobs), sum)
}

// signatures returns how many specs the deployment signed.
func (s stacks) signatures() (n int) {
	for _, r := range s.Deployed {
		n += r.Calls["KMS Sign"]
	}
	return n
}

const (
	// processes is the number of processes of functions that seal and open values, if 10,000 installs work: what runs at once.
	processes = 20
	// dataKeysOfAJob are the requests to KMS for data keys, for each job of 10,000 installs: each hour each process makes one, and
	// opens that of each other process once; see pkg/seal/kms. The counted deployment has the first requests of all processes.
	dataKeysOfAJob = processes * (1 + processes) * monthHours / (most * 200.)
)

// piece returns the GB-seconds of an invocation of logindex that appends a piece. An invocation that archives a log also asks S3.
func (s stacks) piece() float64 {
	r := s.Deployed["logindex"]
	r.Calls = maps.Clone(r.Calls)
	maps.DeleteFunc(r.Calls, func(call string, _ int) bool { return strings.HasPrefix(call, "S3 ") })
	return r.usage(false).GBSeconds
}

// together are the numbers of jobs that run at the same time in the deployment of examples/shop: its four components are no chain.
var together = []int{1, 1, 2, 2, 1, 1}

const (
	jobsOfShop = 8
	warmFor    = control.WarmFor
)

// busyShare is the time in which an agent has jobs, for each minute of a job.
func busyShare() float64 { return float64(len(together)) / jobsOfShop }

// warmWaits returns for how many seconds steps wait for each job, and how often they look for their markers meanwhile, if jobs last
// so long. After each claim the agent starts a step for each job that follows; a step waits for five minutes at most. It looks each
// second, and after a minute every three.
func warmWaits(job time.Duration) (seconds, looks float64) {
	left := jobsOfShop
	ages := []time.Duration{} // of the steps that wait, oldest first
	for _, n := range together {
		ages = slices.DeleteFunc(ages, func(age time.Duration) bool { return age >= warmFor })
		ages = ages[min(n, len(ages)):] // these get the jobs
		for left -= n; len(ages) < left; {
			ages = append(ages, 0)
		}
		for i, age := range ages {
			end := min(age+job, warmFor)
			eager := max(0, min(end, time.Minute)-age)
			seconds += (end - age).Seconds()
			looks += eager.Seconds() + (end-age-eager).Seconds()/3
			ages[i] = age + job
		}
	}
	return seconds / jobsOfShop, looks / jobsOfShop
}

// warmSecond returns the usage of a second in which a step waits for its job, on average in a typical deployment: it looks for its
// marker with half a read unit, and asks once a minute.
func (s stacks) warmSecond() (usage, error) {
	u, err := of(s.Deployed, warmRoute)
	u = usage{}.plus(1./60, u)
	seconds, looks := warmWaits(typicalJob)
	u.Reads += 0.5 * looks / seconds
	return u, err
}

// minute returns the usage of each minute of a running job: it renews its lease four times a minute, and looks for its cancel marker
// every 1.5 seconds with half a read unit. Each renewal also changes the job, which invokes dispatch. An agent that
// has jobs sends a heartbeat every 18 s.
func (s stacks) minute(beat time.Duration) (usage, error) {
	const (
		renewals = 4
		looks    = 40
	)
	renewal, err := of(s.Deployed, renewalRoute)
	dispatch, err2 := of(s.Deployed, "dispatch")
	beats := s.Heartbeats.usage(true)
	dispatch = usage{Invokes: 1, GBSeconds: dispatch.GBSeconds} // it sends nothing
	r := s.Deployed[renewalRoute]
	renewal.Reads += r.LogReads / float64(max(1, r.Count))
	u := usage{}.plus(renewals, renewal).plus(renewals, dispatch).plus(busyShare()*time.Minute.Seconds()/beat.Seconds(), beats)
	u.Reads += looks / 2.
	return u, errors.Join(err, err2)
}

// watchHour returns the usage of an hour of the sweep for an idle runner: whether it is online, and whether its queue has dead letters.
func watchHour(ctx context.Context) (usage, error) {
	const (
		runners = 20
		hours   = 24
	)
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	meter, t := enginetest.Meter(enginetest.Memory()), newTally()
	clock := func() time.Time { return now }
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return usage{}, err
	}
	mint := make([]byte, identity.MinKey)
	c := control.New(control.Deps{
		Store: store.New(meter), Queue: countedQueue{memory.New(clock, 5), t}, Log: joblogtest.Memory(), Blobs: blobtest.Memory(),
		Sealer: seal.NewKeyring(seal.GenerateKey()), Minter: identity.NewMinter(mint), IDs: fairlead.RandomIDs(clock), Now: clock, Logger: slog.New(slog.DiscardHandler), Intervals: control.Metered(),
		Signer: events.NewRemoteSigner(key.Public().(ed25519.PublicKey), func(_ context.Context, m []byte) ([]byte, error) { return ed25519.Sign(key, m), nil }),
	})
	type idle struct {
		id    fairlead.RunnerID
		nonce string
		due   time.Time
	}
	open := func(r *idle) error {
		if r.nonce == "" { // the last renewal of a session; or the first session
			r.nonce = c.NewChallenge()
		}
		s, err := c.OpenSession(ctx, control.SessionProof{Runner: r.id, Nonce: r.nonce, PublicKey: key.Public().(ed25519.PublicKey),
			Statement: wire.SessionStatement(r.nonce, string(r.id), "idle"), Signature: ed25519.Sign(key, wire.SessionStatement(r.nonce, string(r.id), "idle")),
			Instance: "idle", Capacity: 4, Report: &control.Heartbeat{Capacity: 4}})
		r.nonce = s.Renewal
		r.due = now.Add(time.Duration(float64(time.Hour) / renewalsAnHour))
		return err
	}
	// measured returns the usage of the sweeps, without the renewals between them.
	measured := func(all []*idle) (usage, error) {
		var sum usage
		for end := now.Add(hours * time.Hour); now.Before(end); now = now.Add(time.Minute / (1 + messages)) {
			for _, r := range all {
				if !now.Before(r.due) {
					if err := open(r); err != nil {
						return sum, err
					}
				}
			}
			meter.Reset()
			t.reset()
			if _, err := c.Sweep(ctx); err != nil {
				return sum, err
			}
			sum = sum.plus(1, t.usage(meter.Total()))
			sum.Invokes += float64(meter.Usage()[enginetest.OpCommitOne].Calls) // each changes a watch, which invokes dispatch
		}
		return sum, nil
	}
	base, err := measured(nil)
	if err != nil {
		return usage{}, err
	}
	var all []*idle
	for i := range runners {
		made, err := c.CreateRunner(ctx, fairlead.DefaultOrg, control.NewRunner{Name: fmt.Sprint("idle-", i)}, "")
		if err != nil {
			return usage{}, err
		}
		token, _, err := c.CreateEnrolment(ctx, control.User{Org: fairlead.DefaultOrg}, made.Name)
		if err == nil {
			_, err = c.Enrol(ctx, token, key.Public().(ed25519.PublicKey))
		}
		if err != nil {
			return usage{}, err
		}
		all = append(all, &idle{id: made.ID})
	}
	if _, err := measured(all); err != nil { // first looks at new runners
		return usage{}, err
	}
	sum, err := measured(all)
	per := usage{}.plus(1./runners/hours, sum.plus(-1, base))
	per.GBSeconds = per.Invokes * lambdaMS / 1000 * functionMB / 1024 // of dispatch
	return per, err
}
