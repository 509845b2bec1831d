package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
	storesqlite "github.com/fairlead/fairlead/pkg/store/sqlite"
)

// measurePlacement measures the placement of one install among many rules and runners. It
// measures the decision alone, and the decision after it reads all rules and runners from
// the embedded table.
func measurePlacement(ctx context.Context, b *bench) (err error) {
	runners, rules := manyRunners(b.counts.placementRunners), manyRules(b.counts.placementRules)
	install := placement.Install{ID: "ins_bench", Name: "bench", Org: fairlead.DefaultOrg, Group: "eu/prod", App: "shop",
		Labels: placement.LabelsOf(map[string]string{"env": "prod", "tier": "t1", "name": strings.Repeat("x", 60)})}
	var decide []float64
	for range b.counts.placementRounds {
		began := time.Now()
		if _, err := placement.Decide(install, rules, runners); err != nil {
			return fmt.Errorf("decide: %w", err)
		}
		decide = append(decide, ms(time.Since(began)))
	}
	b.set("placement_ms_p50", median(decide))
	b.set("placement_ms_p95", quantile(decide, 0.95))

	engine, err := storesqlite.Open(ctx, filepath.Join(b.work, "placement.db"), storesqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	s := store.New(engine)
	if err := fill(ctx, s, install, rules, runners); err != nil {
		return err
	}
	c := control.New(control.Deps{Store: s, Now: time.Now, IDs: fairlead.RandomIDs(time.Now)}) // ExplainInstall needs no other dependency
	var explain []float64
	for range b.counts.placementReads {
		began := time.Now()
		e, err := c.ExplainInstall(ctx, install.Org, install.Name)
		if err != nil {
			return err
		}
		if e.Refused != nil {
			return fmt.Errorf("explain: %w", e.Refused)
		}
		explain = append(explain, ms(time.Since(began)))
	}
	b.set("placement_read_ms_p50", median(explain))
	return nil
}

func manyRunners(n int) []placement.Runner {
	var runners []placement.Runner
	for i := range n {
		r := placement.Runner{ID: fairlead.RunnerID(fmt.Sprintf("run_%05d", i)), Name: fmt.Sprintf("r-%05d", i), Org: fairlead.DefaultOrg,
			Scope: placement.Group, Mode: fairlead.ModeEnabled, Storage: placement.Storage{Kind: "http"}}
		if i%10 != 0 {
			r.Group = placement.Path(fmt.Sprintf("eu/g%d", i%100))
		}
		runners = append(runners, r)
	}
	return runners
}

// manyRules returns n rules. A tenth of them match the measured install.
func manyRules(n int) []placement.Rule {
	var rules []placement.Rule
	for i := range n {
		// The table requires that every rule has a different match.
		m, own := placement.Match{Group: "eu/**", App: "shop"}, fmt.Sprintf("k%05d", i)
		labels := map[string]string{"env": "p*", own: "*"}
		switch i % 10 {
		case 0: // matches
			labels = map[string]string{"env": "prod", "tier": "t*", "name": pattern(i / 10)}
		case 1:
			m.Group = fmt.Sprintf("us/g%d/**", i)
		case 2:
			m.App = "blog"
		}
		m.Labels = placement.LabelsOf(labels)
		rules = append(rules, placement.Rule{ID: placement.RuleID(fmt.Sprintf("rul_%05d", i)), Org: fairlead.DefaultOrg, Match: m, Runner: "run_00000"})
	}
	return rules
}

// pattern returns the n-th of 1024 different patterns that match sixty x.
func pattern(n int) string {
	var b strings.Builder
	for bit := range 10 {
		if n>>bit&1 == 0 {
			b.WriteByte('*')
		}
		b.WriteByte('x')
	}
	return b.String() + "*"
}

// fill stores the install, the rules and the runners.
func fill(ctx context.Context, s *store.Store, install placement.Install, rules []placement.Rule, runners []placement.Runner) error {
	const perCommit = 45 // a runner is two records, and a commit has at most a hundred records
	tx, n := &store.Tx{}, 0
	flush := func(least int) error {
		if n < least || tx.Empty() {
			return nil
		}
		err := s.Commit(ctx, fmt.Sprintf("com_bench_%d", time.Now().UnixNano()), tx)
		tx, n = &store.Tx{}, 0
		return err
	}
	tx.PutInstall(store.Stored[store.Install]{V: store.Install{ID: install.ID, Org: install.Org, Name: install.Name, App: install.App, Group: install.Group,
		Labels: install.Labels.Map()}})
	for _, r := range runners {
		tx.PutRunner(store.Stored[store.Runner]{V: store.Runner{ID: r.ID, Org: r.Org, Name: r.Name, Kind: "local", Storage: "http", Group: r.Group,
			Config: []byte(`{"id":"` + r.Name + `","runner_configuration":{"type":"local"},"state_storage_configuration":{"type":"http"}}`)}})
		n++
		if err := flush(perCommit); err != nil {
			return err
		}
	}
	for _, r := range rules {
		tx.PutRunnerRule(store.Stored[store.RunnerRule]{V: store.RunnerRule{Rule: r, RunnerName: "r-00000", Made: string(r.ID)}})
		n++
		if err := flush(perCommit); err != nil {
			return err
		}
	}
	return flush(0)
}
