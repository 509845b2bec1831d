package deployment_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/tools/page"
)

// docs/reference/states.md is generated. The transitions of jobs come from the table of package job. The transitions of
// deployments come from a walk, which starts with small deployments and visits all deployments that events can produce.
// The meaning of a state or event comes from its comment. Only the sentences of the template and of this file can
// differ from the code.
func TestStatesPageIsUpToDate(t *testing.T) {
	want, err := statesPage()
	if err != nil {
		t.Fatal(err)
	}
	page.HoldFile(t, "docs/reference/states.md", want)
}

// If the walk missed a state, the page would not describe how a component gets into this state.
func TestWalkReachesEveryNodeState(t *testing.T) {
	doc, err := statesPage()
	if err != nil {
		t.Fatal(err)
	}
	_, components, _ := strings.Cut(string(doc), "### Components in a deployment")
	nodes, err := constants(filepath.Join(root, "pkg", "deployment", "deployment.go"), "NodeState")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		if s.Value != "pending" && !strings.Contains(components, "→ `"+s.Value+"`") {
			t.Errorf("the walk found no transition to %s", s.Value)
		}
	}
}

// The API's schema lists the states again, in tags. They must match the constants.
func TestAPIEnumsMatchConstants(t *testing.T) {
	values := func(file, typeName string) []string {
		cs, err := constants(filepath.Join(root, file), typeName)
		if err != nil {
			t.Fatal(err)
		}
		var vs []string
		for _, c := range cs {
			vs = append(vs, c.Value)
		}
		return vs
	}
	var ops []string
	for _, op := range job.Operations() {
		ops = append(ops, string(op))
	}
	for name, c := range map[string]struct {
		in    reflect.Type
		field string
		want  []string
	}{
		"jobs":        {reflect.TypeFor[wire.Job](), "State", values("pkg/job/job.go", "State")},
		"operations":  {reflect.TypeFor[wire.Job](), "Operation", ops},
		"deployments": {reflect.TypeFor[wire.Deployment](), "State", values("pkg/deployment/deployment.go", "State")},
		"components":  {reflect.TypeFor[wire.DeploymentComponent](), "State", values("pkg/deployment/deployment.go", "NodeState")},
		"kinds":       {reflect.TypeFor[wire.Deployment](), "Kind", values("pkg/deployment/deployment.go", "Kind")},
	} {
		f, _ := c.in.FieldByName(c.field)
		got := strings.Split(f.Tag.Get("enum"), ",")
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
			t.Errorf("the API's enum of %s is %v, the constants are %v", name, got, c.want)
		}
	}
}

const pageTemplate = "states.md.tmpl"

// root is the module's folder.
var root = filepath.Join("..", "..")

// state is the constant of a state, as the page shows it.
type state struct {
	constant
	Final bool
}

// Name is bold if nothing follows the state.
func (s state) Name() string {
	if s.Final {
		return "**`" + s.Value + "`**"
	}
	return "`" + s.Value + "`"
}

// life is the states of a job, deployment or node, with their transitions.
type life struct {
	States []state
	Moves  []move
}

// statesPage returns the whole page.
func statesPage() ([]byte, error) {
	var errs []error
	read := func(file, typeName string, final func(string) bool) (all []state) {
		found, err := constants(filepath.Join(root, "pkg", file), typeName)
		errs = append(errs, err)
		for _, c := range found {
			all = append(all, state{c, final(c.Value)})
		}
		return all
	}
	jobs := life{States: read("job/job.go", "State", func(s string) bool { return job.State(s).Final() })}
	kinds := read("job/transitions.go", "Kind", func(string) bool { return false })
	deployments := life{States: read("deployment/deployment.go", "State", func(s string) bool { return deployment.State(s).Final() })}
	nodes := life{States: read("deployment/deployment.go", "NodeState", func(s string) bool { return deployment.NodeState(s).Final() })}
	if len(jobs.States) != len(job.States()) || len(kinds) != len(job.Kinds()) {
		errs = append(errs, errors.New("job.States or job.Kinds does not list every constant"))
	}
	for _, tr := range job.Transitions() {
		m := move{From: string(tr.From), To: string(tr.To), On: string(tr.On)}
		if tr.If != job.Always {
			m.Label = " if " + string(tr.If)
		}
		m.Label = m.On + m.Label
		if m.From != m.To {
			jobs.Moves = append(jobs.Moves, m)
		}
	}
	w, err := walked()
	errs = append(errs, err)
	deployments.Moves, nodes.Moves = w.deployments, w.nodes
	order := func(s string) int { return slices.IndexFunc(nodes.States, func(c state) bool { return c.Value == s }) }
	slices.SortFunc(nodes.Moves, func(x, y move) int {
		return cmp.Or(order(x.From)-order(y.From), order(x.To)-order(y.To), strings.Compare(x.On, y.On))
	})
	t, err := template.New(pageTemplate).Funcs(template.FuncMap{"id": id, "edges": edges, "targets": targets, "causes": causes, "crash": crash, "sender": sender,
		"leased": func(kind string) bool { return job.Kind(kind).Leased() },
		"events": func(from, to string) (string, error) { return events(jobs.Moves, from, to) }}).ParseFiles(filepath.Join("testdata", pageTemplate))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{"Jobs": jobs, "Kinds": kinds, "Transitions": job.Transitions(), "Deployments": deployments, "Nodes": nodes,
		"StartTimeout": span(job.StartTimeout), "LeaseTTL": span(job.LeaseTTL), "Renew": span((job.Terms{}).RenewEvery()), "Attempts": job.MaxAttempts,
		"Pauses": []string{span(job.Backoff(1)), span(job.Backoff(2))}, "Plan": span(job.OpPlan.Timeout()), "Apply": span(job.OpApply.Timeout()),
		"Build": span(job.OpBuild.Timeout()), "Check": span(job.OpCheck.Timeout()), "Grace": span(job.Grace), "StopTTL": span((job.Terms{}).StopTTL()),
		"QueueTimeout": span(job.QueueTimeout), "NoOutput": span(job.NoOutput),
		"PlansExpire": span(deployment.PlansExpire), "MinPlansExpire": span(deployment.MinPlansExpire), "MaxPlansExpire": span(deployment.MaxPlansExpire)})
	return b.Bytes(), err
}

// sender returns who reports an event of a job to the control plane.
func sender(kind string) (string, error) {
	from := map[job.Kind]string{job.Claim: "agent", job.Release: "agent", job.Die: "agent",
		job.Start: "step", job.Renew: "step", job.Succeed: "step", job.Fail: "step", job.Stopped: "step",
		job.Cancel: "person, deployment", job.Expire: "sweep",
		// The sweep sends the event if the job waited or ran for too long. Package control sends it if a renewal reports
		// that the tool wrote no output for too long.
		job.TimeOut: "sweep, control",
	}[job.Kind(kind)]
	if from == "" {
		return "", fmt.Errorf("no sender of event %s is listed", kind)
	}
	return from, nil
}

// crash describes what remains if every process dies while a job is in the state s, and what continues the job later.
func crash(s string) (string, error) {
	if job.State(s).Final() {
		return "Nothing: one commit stores the state, the event and all consequences.", nil
	}
	left := map[job.State]string{
		job.Queued:    "The job waits. The sweep sends its wake-up again after " + span(job.ResendAfter) + ".",
		job.Claimed:   "No tool has run. After the start timeout the sweep queues the job again. A step that starts later is refused, because its epoch is older.",
		job.Running:   "The tool may still run on the customer's machine, and may have made changes. The lease expires. A job that does not mutate is repeated in a new workspace. An apply or destroy is lost, and a new plan shows what is missing.",
		job.Canceling: "As for running, but no job is repeated: a job that does not mutate is canceled, or failed if it had timed out. An apply or destroy is lost.",
	}[job.State(s)]
	if left == "" {
		return "", fmt.Errorf("no text describes a crash in state %s", s)
	}
	return left, nil
}

// span renders a whole number of seconds in the largest unit that fits.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour && d%(24*time.Hour) == 0:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// id returns a state's identifier for Mermaid. Mermaid accepts no hyphens in identifiers.
func id(s string) string { return strings.ReplaceAll(s, "-", "_") }

// edges draws the moves between two states as one edge, with all their labels.
func edges(moves []move) (lines []string) {
	drawn := map[string]int{}
	for _, m := range moves {
		edge := id(m.From) + " --> " + id(m.To)
		at, known := drawn[edge]
		switch {
		case !known:
			drawn[edge] = len(lines)
			if m.Label != "" {
				edge += ": " + m.Label
			}
			lines = append(lines, edge)
		case m.Label != "":
			lines[at] += ", " + m.Label
		}
	}
	return lines
}

// events lists events with their senders: the events that lead out of the state from, or the events that lead into the
// state to. The caller sets only one of the two parameters. The other is "".
func events(moves []move, from, to string) (string, error) {
	var all []string
	for _, m := range moves {
		sent, err := sender(m.On)
		if err != nil {
			return "", err
		}
		if s := sent + ": " + m.On; (m.From == from || m.To == to) && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return strings.Join(all, "; "), nil
}

func targets(moves []move, from string) string {
	to := map[string]bool{}
	for _, m := range moves {
		if m.From == from {
			to["`"+m.To+"`"] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(to)), ", ")
}

// causes lists the causes of moves out of the state from. A condition is listed only if moves with the same cause
// differ in it.
func causes(moves []move, from string) string {
	times, ways := map[string]int{}, map[string]int{}
	moves = slices.DeleteFunc(slices.Clone(moves), func(m move) bool { return m.From != from })
	for _, m := range moves {
		ways[m.On]++
		for _, c := range m.If {
			times[m.On+c]++
		}
	}
	var all []string
	for _, m := range moves {
		parts := []string{m.On}
		for _, c := range m.If {
			if times[m.On+c] < ways[m.On] {
				parts = append(parts, c)
			}
		}
		all = append(all, strings.Join(parts, ", ")+" → `"+m.To+"`")
	}
	return strings.Join(all, "<br>")
}

// constant is a declared constant with its comment.
type constant struct{ Value, Comment string }

// constants returns the string constants of the named type in a Go file, in source order. A constant without a
// comment is an error, because the page shows the comment.
func constants(file, typeName string) ([]constant, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("read constants: %w", err)
	}
	var all []constant
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if id, ok := v.Type.(*ast.Ident); !ok || id.Name != typeName {
				continue
			}
			lit, ok := v.Values[0].(*ast.BasicLit)
			if !ok {
				return nil, fmt.Errorf("%s: %s is not a literal", file, v.Names[0].Name)
			}
			value, err := strconv.Unquote(lit.Value)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, v.Names[0].Name, err)
			}
			text := v.Doc.Text() + v.Comment.Text()
			text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), v.Names[0].Name+": ")
			if text == "" && value != "" {
				return nil, fmt.Errorf("%s: %s has no comment", file, v.Names[0].Name)
			}
			all = append(all, constant{Value: value, Comment: text})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no constant of type %s", file, typeName)
	}
	return all, nil
}
