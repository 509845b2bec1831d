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

// maxRetries is the number of retries of a failed deployment before the person creates another
// one.
const maxRetries = 4

// person deploys one install repeatedly, and runs the offered commands.
type person struct {
	w       *world
	install string
	rand    *rand.Rand
	books   *books
	rev     int
}

// books records answers and commands of persons. Safe for concurrent use.
type books struct {
	mu       sync.Mutex
	accepted []string       // deployments whose creation was confirmed
	commands map[string]int // number of offered commands that were run, by name
	refused  map[string]int // number of refused commands, by name and first line of the error
	stuck    []string       // outputs of `deployment show` that offer no next command
}

func newBooks() *books { return &books{commands: map[string]int{}, refused: map[string]int{}} }

func (b *books) accept(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted = append(b.accepted, id)
}

func (b *books) ran(name string, code int, stderr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.commands[name]++
	if code != 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
		b.refused[fmt.Sprintf("%s: exit code %d: %s", name, code, first)]++
	}
}

// noWay records an output that offers no next command.
func (b *books) noWay(name, shown string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = append(b.stuck, "`deployment show` offers neither "+name+" nor another command:\n"+shown)
}

// newPerson creates the install. pace is the number of seconds that its resources sleep before
// and after their creation.
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

// work deploys until ctx ends. finish completes the deployments that are still active at that time.
func (p *person) work(ctx context.Context) {
	for ctx.Err() == nil {
		in := wire.CreateDeploymentRequest{Kind: "deploy", AutoApprove: p.rand.IntN(10) < 6, Refresh: p.rand.IntN(2) == 0}
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
		if p.rand.IntN(100) < 5 { // a second deployment, which is queued behind the first
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
	// If the update fails, the next deployment has no changes, which is fine.
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

// follow runs the offered commands until the deployment ends, and returns its last state. If ctx
// ends first, the state may not be final.
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
			code, _, stderr := p.w.cli(ctx, "deployment", "cancel", id)
			p.books.ran("deployment cancel", code, stderr)
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
				return state // the install has a later deployment
			}
			if next != "" {
				p.books.accept(next)
				id = next
			}
		case state == "awaiting-approval":
			_, _ = p.obey(ctx, id, "deployment approve") // if it fails, the next turn approves again
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

// obey runs the first command with the name that `deployment show` offers, and returns its
// output if it succeeds. offers is false if `deployment show` offers a new deployment instead. In
// that case, the next deployment of the install replaces this command.
func (p *person) obey(ctx context.Context, id, name string) (printed string, offers bool) {
	code, shown, _ := p.w.cli(ctx, "deployment", "show", id)
	if code != 0 {
		return "", true
	}
	instead := ""
	for _, m := range offered.FindAllStringSubmatch(shown, -1) {
		if strings.HasPrefix(m[1], "install deploy ") || strings.HasPrefix(m[1], "install teardown ") {
			instead = m[1][:strings.LastIndexByte(m[1], ' ')]
		}
		if !strings.HasPrefix(m[1], name+" ") {
			continue
		}
		code, out, stderr := p.w.cli(ctx, append(strings.Fields(m[1]), "--detach")...)
		p.books.ran(name, code, stderr)
		if code == 0 {
			return strings.TrimSpace(out), true
		}
		return "", true
	}
	if d, err := p.look(ctx, id); err == nil && !d.Done() && d.State != "awaiting-approval" {
		return "", true // the deployment continued meanwhile
	}
	if instead == "" {
		p.books.noWay(name, shown)
		return "", true
	}
	p.books.ran(instead+" offered instead of "+name+", left to the next deployment", 0, "")
	return "", false
}

// finish runs after the faults. It takes all deployments of the install to their end, and then
// deploys the install once more, which must succeed.
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
				open = d.ID // the list starts with the newest, so the last match is the oldest
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
		return fmt.Errorf("there are no more faults, but deployment %s of %s is %s", id, p.install, state)
	}
	return nil
}

// verify plans the install. It returns an error if the plan has changes.
func (p *person) verify(ctx context.Context) error {
	id, err := p.deploy(ctx, wire.CreateDeploymentRequest{Kind: "deploy", PlanOnly: true, Refresh: true})
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
			return fmt.Errorf("%s/%s was deployed, but a plan has the changes %+v (%s)", p.install, c.Name, c.Changes, c.State)
		}
	}
	return nil
}
