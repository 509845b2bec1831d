//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
)

// maxRetries is how often a person retries a deployment that failed, before
// they begin another one.
const maxRetries = 4

// person deploys one install again and again, and does what they are told.
type person struct {
	w       *world
	install string
	rand    *rand.Rand
	books   *books
	rev     int
}

// books is what persons were promised. Safe for concurrent use.
type books struct {
	mu       sync.Mutex
	accepted []string       // deployments that were confirmed
	commands map[string]int // that were run because they were offered, by their first words
	refused  map[string]int // of them, by the words and the first line of the answer
	stuck    []string       // what was shown where no way was offered
}

func newBooks() *books { return &books{commands: map[string]int{}, refused: map[string]int{}} }

func (b *books) accept(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted = append(b.accepted, id)
}

func (b *books) ran(words string, code int, said string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.commands[words]++
	if code != 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
		b.refused[fmt.Sprintf("%s: exit code %d: %s", words, code, first)]++
	}
}

// noWay notes a text that offers nothing to do.
func (b *books) noWay(words, shown string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = append(b.stuck, "a person who looks for a "+words+" is offered no way on:\n"+shown)
}

// newPerson makes the install, whose pace is the seconds that its resources
// sleep before and after they are made.
func newPerson(ctx context.Context, w *world, b *books, name, runner, pace string, r *rand.Rand) (*person, error) {
	inputs := map[string]json.RawMessage{"revision": quote("0"), "pace": quote(pace)}
	if _, err := w.client.CreateInstall(ctx, wire.CreateInstallRequest{Name: name, App: appName, Runner: runner, Inputs: inputs}); err != nil {
		return nil, err
	}
	return &person{w: w, install: name, rand: r, books: b}, nil
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string can be encoded
	return b
}

// work deploys until ctx ends; what it has begun then is others' to finish.
func (p *person) work(ctx context.Context) {
	for ctx.Err() == nil {
		in := wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: p.rand.IntN(10) < 6}
		if p.rand.IntN(100) < 85 {
			p.revise(ctx)
		}
		switch n := p.rand.IntN(100); {
		case n < 8:
			in.Kind = "teardown"
		case n < 13:
			in.PlanOnly, in.AutoApprove = true, false
		}
		var cancelAfter time.Duration
		if p.rand.IntN(100) < 6 {
			cancelAfter = span(p.rand, 50*time.Millisecond, 5*time.Second)
		}
		d, err := p.deploy(ctx, in)
		if err != nil {
			sleep(ctx, 500*time.Millisecond)
			continue
		}
		if p.rand.IntN(100) < 5 { // and one that waits for it
			if second, err := p.deploy(ctx, in); err == nil {
				p.follow(ctx, d, cancelAfter)
				d = second
			}
		}
		p.follow(ctx, d, cancelAfter)
	}
}

func (p *person) revise(ctx context.Context) {
	p.rev++
	asked, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// An input that was not changed makes a deployment without changes.
	_, _ = p.w.client.UpdateInstall(asked, p.install, wire.UpdateInstallRequest{Inputs: map[string]json.RawMessage{"revision": quote(fmt.Sprint(p.rev))}})
}

func (p *person) deploy(ctx context.Context, in wire.CreateDeploymentRequest) (string, error) {
	asked, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	d, err := p.w.client.CreateDeployment(asked, p.install, in)
	if err != nil {
		return "", err
	}
	p.books.accept(d.ID)
	return d.ID, nil
}

// follow takes a deployment to its end, as whoever does what they are told. It
// returns its last state, which is none that is final when ctx has ended.
func (p *person) follow(ctx context.Context, id string, cancelAfter time.Duration) string {
	state, retries := "", 0
	var canceled <-chan time.Time
	if cancelAfter > 0 {
		canceled = time.After(cancelAfter)
	}
	for ctx.Err() == nil {
		select {
		case <-canceled:
			canceled = nil
			code, _, said := p.w.cli(ctx, "deployment", "cancel", id)
			p.books.ran("deployment cancel", code, said)
		default:
		}
		d, err := p.look(ctx, id)
		if err != nil {
			sleep(ctx, 200*time.Millisecond)
			continue
		}
		state = d.State
		switch {
		case state == "succeeded", state == "canceled":
			return state
		case state == "failed" && retries == maxRetries:
			return state
		case state == "failed":
			retries++
			sleep(ctx, time.Duration(retries)*500*time.Millisecond)
			next, offered := p.obey(ctx, id, "deployment retry")
			if !offered {
				return state // another deployment has followed it
			}
			if next != "" {
				p.books.accept(next)
				id = next
			}
		case state == "awaiting-approval":
			_, _ = p.obey(ctx, id, "deployment approve") // what was not done is asked for again
			sleep(ctx, 100*time.Millisecond)
		default:
			sleep(ctx, 100*time.Millisecond)
		}
	}
	return state
}

func (p *person) look(ctx context.Context, id string) (wire.Deployment, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return p.w.client.GetDeployment(ctx, id)
}

// offered finds the commands that a text offers.
var offered = regexp.MustCompile("`fairlead ([^`]+)`")

// obey runs the first command with the words that `deployment show` offers. It
// returns what it printed if it went well, and false if another way is offered
// instead, which is whoever follows to take.
func (p *person) obey(ctx context.Context, id, words string) (printed string, offers bool) {
	code, shown, _ := p.w.cli(ctx, "deployment", "show", id)
	if code != 0 {
		return "", true
	}
	instead := ""
	for _, m := range offered.FindAllStringSubmatch(shown, -1) {
		if strings.HasPrefix(m[1], "install deploy ") || strings.HasPrefix(m[1], "install teardown ") {
			instead = m[1][:strings.LastIndexByte(m[1], ' ')]
		}
		if !strings.HasPrefix(m[1], words+" ") {
			continue
		}
		code, out, said := p.w.cli(ctx, append(strings.Fields(m[1]), "--detach")...)
		p.books.ran(words, code, said)
		if code == 0 {
			return strings.TrimSpace(out), true
		}
		return "", true
	}
	if d, err := p.look(ctx, id); err == nil && !d.Done() && d.State != "awaiting-approval" {
		return "", true // it has gone on meanwhile
	}
	if instead == "" {
		p.books.noWay(words, shown)
		return "", true
	}
	p.books.ran(instead+" in place of "+words+", left to the next deployment", 0, "")
	return "", false
}

// finish takes everything of the install to its end, and then deploys until
// the install is as it should be, when nothing is broken any more.
func (p *person) finish(ctx context.Context) error {
	for {
		all, err := client.All(ctx, func(ctx context.Context, o client.ListOptions) (wire.Page[wire.Deployment], error) {
			return p.w.client.ListDeployments(ctx, client.DeploymentFilter{Install: p.install}, o)
		})
		if err != nil {
			return fmt.Errorf("list the deployments of %s: %w", p.install, err)
		}
		open := ""
		for _, d := range all {
			if !d.Done() {
				open = d.ID // the list begins with the newest: the last is the oldest
			}
		}
		if open == "" {
			break
		}
		if state := p.follow(ctx, open, 0); ctx.Err() != nil {
			return fmt.Errorf("deployment %s of %s is still %s", open, p.install, state)
		}
	}
	p.revise(ctx)
	id, err := p.deploy(ctx, wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: true})
	if err != nil {
		return fmt.Errorf("deploy %s: %w", p.install, err)
	}
	if state := p.follow(ctx, id, 0); state != "succeeded" {
		return fmt.Errorf("nothing is broken any more, and deployment %s of %s is %s", id, p.install, state)
	}
	return nil
}

// verify plans the install and returns what is not as it should be.
func (p *person) verify(ctx context.Context) error {
	id, err := p.deploy(ctx, wire.CreateDeploymentRequest{Kind: "deploy", PlanOnly: true})
	if err != nil {
		return fmt.Errorf("plan %s: %w", p.install, err)
	}
	if state := p.follow(ctx, id, 0); state != "succeeded" {
		return fmt.Errorf("the plan %s of %s is %s", id, p.install, state)
	}
	d, err := p.look(ctx, id)
	if err != nil {
		return err
	}
	for _, c := range d.Components {
		if c.State != "unchanged" {
			return fmt.Errorf("%s/%s was deployed, and a plan finds %+v (%s)", p.install, c.Name, c.Changes, c.State)
		}
	}
	return nil
}
