package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
)

// parse reads a policy without problems. The line of version is 1.
func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte("version: 1\n"+text))
	if p == nil {
		t.Fatalf("%v\n%s", problems, text)
	}
	return p
}

func change(action changeset.Action, kind, name string, after any) changeset.Change {
	c := changeset.Change{Address: kind + "." + name, Kind: kind, Action: action}
	if action == changeset.Delete || action == changeset.Forget {
		c.Before = after
	} else {
		c.After = after
	}
	return c
}

func planOf(changes ...changeset.Change) *policy.Plan { return &policy.Plan{Changes: changes} }

func values(text string) any {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

func ask(o job.Operation, set func(*policy.Request)) policy.Request {
	q := policy.Request{Now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), Operation: o, Component: "web", Type: "terraform"} // a Wednesday
	if set != nil {
		set(&q)
	}
	return q
}

// The story of a customer that lets a vendor run a database, and does not let it open the database to the world.
func TestCustomersPolicyDecides(t *testing.T) {
	p := parse(t, `
operations: [plan, apply]
types: [terraform]
windows:
  nights: {time_zone: Europe/Berlin, days: [mon, tue, wed, thu], from: "22:00", to: "04:00"}
ceilings:
  component: {destroys: 0}
deny:
  open-database:
    types: [aws_db_instance]
    when:
      /publicly_accessible: {is: [true]}
approvals:
  new-roles: {types: [aws_iam_*], actions: [create, update]}
`)
	night := time.Date(2026, 3, 4, 23, 30, 0, 0, time.UTC) // 0:30 on Thursday in Berlin
	database := change(changeset.Create, "aws_db_instance", "main", values(`{"publicly_accessible": true}`))
	for _, c := range []struct {
		consequence string
		request     policy.Request
		want        policy.Effect
		rule        string
		line        int
	}{
		{"a plan is made by day", ask(job.OpPlan, nil), policy.Allow, "", 0},
		{"a change waits for the night", ask(job.OpApply, nil), policy.Deny, "windows", 5},
		{"a change begins at night", ask(job.OpApply, func(q *policy.Request) { q.Now = night }), policy.Allow, "", 0},
		{"an install is not torn down", ask(job.OpPlanDestroy, nil), policy.Deny, "operations", 3},
		{"a script does not run", ask(job.OpPlan, func(q *policy.Request) { q.Type = "script" }), policy.Deny, "types", 4},
		{"an open database is not planned", ask(job.OpPlan, func(q *policy.Request) { q.Plan = planOf(database) }), policy.Deny, "deny.open-database", 10},
		{"an open database is not applied, whatever the control plane approves", ask(job.OpApply, func(q *policy.Request) { q.Now, q.Plan = night, planOf(database) }), policy.Deny, "deny.open-database", 10},
		{"nothing is replaced, because a replacement destroys", ask(job.OpPlan, func(q *policy.Request) {
			q.Plan = planOf(change(changeset.Replace, "aws_instance", "a", values(`{}`)))
		}), policy.Deny, "ceilings.component.destroys", 8},
		{"a new role waits for the customer", ask(job.OpPlan, func(q *policy.Request) {
			q.Plan = planOf(change(changeset.Create, "aws_iam_role", "r", values(`{}`)))
		}), policy.NeedsApproval, "approvals.new-roles", 15},
		{"a denial precedes an approval", ask(job.OpPlan, func(q *policy.Request) {
			q.Plan = planOf(change(changeset.Create, "aws_iam_role", "r", values(`{}`)), database)
		}), policy.Deny, "deny.open-database", 10},
	} {
		d := p.Decide(c.request)
		if d.Effect != c.want || d.Rule != c.rule || d.Line != c.line || (d.Effect != policy.Allow) != (d.Reason != "") {
			t.Errorf("%s: got %+v, want %s by %q in line %d", c.consequence, d, c.want, c.rule, c.line)
		}
	}
}

func TestDecisionsByField(t *testing.T) {
	const key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	digest := "sha256:" + strings.Repeat("a", 64)
	source := func(s policy.Source) func(*policy.Request) { return func(q *policy.Request) { q.Source = &s } }
	module := func(m policy.Module) func(*policy.Request) { return func(q *policy.Request) { q.Module = &m } }
	plan := func(changes ...changeset.Change) func(*policy.Request) {
		return func(q *policy.Request) { q.Plan = planOf(changes...) }
	}
	at := func(clock string) func(*policy.Request) {
		return func(q *policy.Request) {
			now, err := time.Parse(time.RFC3339, clock)
			if err != nil {
				t.Fatal(err)
			}
			q.Operation, q.Now = job.OpApply, now
		}
	}
	created := func(text string) func(*policy.Request) {
		return plan(change(changeset.Create, "x", "a", values(text)))
	}
	hidden := change(changeset.Create, "x", "a", values(`{"a": "x***"}`))
	hidden.Sensitive = []string{"/a"}
	large := change(changeset.Create, "x", "a", nil)
	large.Omitted = true
	moved := change(changeset.Update, "x", "a", values(`{"b": 1}`))
	moved.Previous = "module.old.x.a"
	const images = "images: ['registry.example.com/acme/**']"
	deployed := func(containers string) func(*policy.Request) {
		return plan(change(changeset.Create, "apps/v1 Deployment", "a", values(`{"kind": "Deployment", "spec": {"template": {"spec": {"containers": `+containers+`}}}}`)))
	}
	partly := change(changeset.Create, "v1 Pod", "a", values(`{"spec": {"containers": [{"image": "registry.example.com/acme/***"}]}}`))
	partly.Sensitive = []string{"/spec/containers/0/image"}
	omitted := func(kind string) changeset.Change {
		c := change(changeset.Create, kind, "a", nil)
		c.Omitted = true
		return c
	}
	const when = "deny: {r: {when: {/a: {is: [bad]}}}}\n"
	for _, c := range []struct {
		consequence, policy string
		set                 func(*policy.Request)
		want                policy.Effect
	}{
		{"an empty policy restricts nothing but variables", "", created(`{}`), policy.Allow},
		{"an empty list of operations permits none", "operations: []", nil, policy.Deny},
		{"an empty list of types permits none", "types: []", nil, policy.Deny},
		{"without windows in the map no change begins", "windows: {}", at("2026-03-04T12:00:00Z"), policy.Deny},

		{"the vendor sets no variable", "", func(q *policy.Request) { q.Variables = []string{"GIT_SSH_COMMAND"} }, policy.Deny},
		{"the vendor sets a listed variable", "environment: [APP_*]", func(q *policy.Request) { q.Variables = []string{"APP_MODE"} }, policy.Allow},
		{"a listed variable lists no longer one", "environment: [APP]", func(q *policy.Request) { q.Variables = []string{"APP_MODE"} }, policy.Deny},
		{"states stay away from the control plane", "telemetry: [logs]", func(q *policy.Request) { q.Storage = "http" }, policy.Deny},
		{"states in the customer's bucket are no telemetry", "telemetry: []", func(q *policy.Request) { q.Storage = "s3" }, policy.Allow},

		{"states go to a listed bucket", "storages: ['s3:acme-states/**']", func(q *policy.Request) { q.Storage = "s3:acme-states/prod" }, policy.Allow},
		{"states do not go to another bucket", "storages: ['s3:acme-states/**']", func(q *policy.Request) { q.Storage = "s3:vendor-states/prod" }, policy.Deny},

		{"code of an unknown origin is denied", "sources: ['**']", source(policy.Source{}), policy.Deny},
		{"the app's folder is denied unless it is listed", "sources: ['git::https://github.com/acme/*']", source(policy.Source{Origin: "app"}), policy.Deny},
		{"the app's folder is listed", "sources: [app]", source(policy.Source{Origin: "app"}), policy.Allow},
		{"a repository of a listed owner is permitted", "sources: ['git::https://github.com/acme/*']", source(policy.Source{Origin: "git::https://github.com/acme/net.git"}), policy.Allow},
		{"a host that begins like a listed one is denied", "sources: ['git::https://github.com/acme/*']", source(policy.Source{Origin: "git::https://github.com.evil.example/acme/net.git"}), policy.Deny},
		{"* does not reach into a folder", "sources: ['git::https://github.com/*']", source(policy.Source{Origin: "git::https://github.com/evil/x.git"}), policy.Deny},
		{"** reaches into folders", "sources: ['git::https://github.com/**']", source(policy.Source{Origin: "git::https://github.com/any/x.git"}), policy.Allow},
		{"a component without provenance is denied", "signers: [" + key + "]", source(policy.Source{Origin: "app"}), policy.Deny},
		{"another key's provenance is denied", "signers: [" + key + "]", source(policy.Source{SignedBy: strings.Replace(key, "A", "B", 1)}), policy.Deny},
		{"a listed key's provenance is permitted", "signers: [" + key + "]", source(policy.Source{SignedBy: key}), policy.Allow},
		{"an unlisted program of a component is denied", "plugins: []", source(policy.Source{Runs: true, Artifact: digest}), policy.Deny},
		{"a listed program of a component is permitted", "plugins: [" + digest + "]", source(policy.Source{Runs: true, Artifact: digest}), policy.Allow},
		{"a component without a program needs no entry", "plugins: []", source(policy.Source{Artifact: digest}), policy.Allow},

		{"a module of an unlisted place is denied", "sources: [app]", module(policy.Module{Sources: []string{"registry.opentofu.org/a/b/c"}}), policy.Deny},
		{"a program in a module is denied", "provisioners: []", module(policy.Module{Programs: []policy.Program{{Kind: policy.LocalExec, At: "main.tf:3"}}}), policy.Deny},
		{"a listed kind of programs is permitted", "provisioners: [local-exec]", module(policy.Module{Programs: []policy.Program{{Kind: policy.LocalExec}}}), policy.Allow},
		{"an unknown kind of programs is denied", "provisioners: [local-exec, remote-exec, file, external]", module(policy.Module{Programs: []policy.Program{{Kind: "chef"}}}), policy.Deny},
		{"a module that cannot be read is denied by each field that reads it", "providers: {'**': '*'}", module(policy.Module{Unreadable: "main.tf is no HCL"}), policy.Deny},
		{"a module that cannot be read concerns no other field", "types: [terraform]", module(policy.Module{Unreadable: "main.tf is no HCL"}), policy.Allow},
		{"an unlisted provider is denied", "providers: {registry.opentofu.org/hashicorp/aws: '*'}", module(policy.Module{Providers: []policy.Provider{{Address: "registry.opentofu.org/evil/aws", Version: "5.0.0"}}}), policy.Deny},
		{"a provider in another version is denied", "providers: {registry.opentofu.org/hashicorp/aws: '>= 5.0, < 6.0'}", module(policy.Module{Providers: []policy.Provider{{Address: "registry.opentofu.org/hashicorp/aws", Version: "6.0.0"}}}), policy.Deny},
		{"a provider in a listed version is permitted", "providers: {registry.opentofu.org/hashicorp/*: '>= 5.0, < 6.0'}", module(policy.Module{Providers: []policy.Provider{{Address: "registry.opentofu.org/hashicorp/aws", Version: "5.9.0"}}}), policy.Allow},
		{"a provider in an unknown version is denied", "providers: {registry.opentofu.org/hashicorp/aws: '>= 5.0'}", module(policy.Module{Providers: []policy.Provider{{Address: "registry.opentofu.org/hashicorp/aws"}}}), policy.Deny},

		{"a window is open at its beginning", "windows: {w: {time_zone: UTC, from: '12:00', to: '13:00'}}", at("2026-03-04T12:00:00Z"), policy.Allow},
		{"a window is closed at its end", "windows: {w: {time_zone: UTC, from: '11:00', to: '12:00'}}", at("2026-03-04T12:00:00Z"), policy.Deny},
		{"a night belongs to the day on which it begins", "windows: {w: {time_zone: UTC, days: [wed], from: '22:00', to: '04:00'}}", at("2026-03-05T03:59:59Z"), policy.Allow},
		{"the morning of the first day is not yet its night", "windows: {w: {time_zone: UTC, days: [wed], from: '22:00', to: '04:00'}}", at("2026-03-04T03:00:00Z"), policy.Deny},
		{"a window to midnight has the whole evening", "windows: {w: {time_zone: UTC, from: '22:00', to: '24:00'}}", at("2026-03-04T23:59:59Z"), policy.Allow},
		{"one open window of several is enough", "windows: {a: {time_zone: UTC, from: '01:00', to: '02:00'}, b: {time_zone: Asia/Tokyo, from: '21:00', to: '22:00'}}", at("2026-03-04T12:30:00Z"), policy.Allow},

		{"a ceiling permits as many", "ceilings: {component: {destroys: 1}}", plan(change(changeset.Delete, "x", "a", nil)), policy.Allow},
		{"a replacement counts as a destroy", "ceilings: {component: {destroys: 0}}", plan(change(changeset.Replace, "x", "a", nil)), policy.Deny},
		{"an import has a ceiling", "ceilings: {component: {imports: 0}}", plan(change(changeset.Import, "x", "a", nil)), policy.Deny},
		{"a forget has a ceiling", "ceilings: {component: {forgets: 0}}", plan(change(changeset.Forget, "x", "a", nil)), policy.Deny},
		{"a move has a ceiling, also with another change", "ceilings: {component: {moves: 0}}", plan(moved), policy.Deny},
		{"an action that is not known counts as a destroy", "ceilings: {component: {destroys: 0}}", plan(change("vanish", "x", "a", nil)), policy.Deny},
		{"changes that are not known count as destroys", "ceilings: {component: {destroys: 1}}", func(q *policy.Request) { q.Plan = &policy.Plan{Omitted: 2} }, policy.Deny},
		{"the other components of a deployment count", "ceilings: {deployment: {destroys: 2}}", func(q *policy.Request) {
			q.Plan = &policy.Plan{Changes: []changeset.Change{change(changeset.Delete, "x", "a", nil)}, Others: policy.Counts{Destroys: 2}}
		}, policy.Deny},
		{"the other components do not count for one component", "ceilings: {component: {destroys: 2}}", func(q *policy.Request) {
			q.Plan = &policy.Plan{Changes: []changeset.Change{change(changeset.Delete, "x", "a", nil)}, Others: policy.Counts{Destroys: 2}}
		}, policy.Allow},

		{"a type is denied", "deny: {r: {types: [aws_iam_*]}}", plan(change(changeset.Create, "aws_iam_user", "a", nil)), policy.Deny},
		{"another type is permitted", "deny: {r: {types: [aws_iam_*]}}", plan(change(changeset.Create, "aws_instance", "a", nil)), policy.Allow},
		{"an object that moves away from a denied address is denied", "deny: {r: {addresses: ['module.old.*']}}", plan(moved), policy.Deny},
		{"a replacement is a delete", "deny: {r: {types: [x], actions: [delete]}}", plan(change(changeset.Replace, "x", "a", nil)), policy.Deny},
		{"an action that is not known is each action", "deny: {r: {types: [x], actions: [delete]}}", plan(change("vanish", "x", "a", nil)), policy.Deny},
		{"a rule denies what it cannot see", "deny: {r: {types: [x]}}", func(q *policy.Request) { q.Plan = &policy.Plan{Omitted: 1} }, policy.Deny},

		{"a denied value is denied", when, created(`{"a": "bad"}`), policy.Deny},
		{"another value is permitted", when, created(`{"a": "good"}`), policy.Allow},
		{"a value that is not known yet is denied", when, created(`{"a": "(known after apply)"}`), policy.Deny},
		{"a value in a part that is not known yet is denied", "deny: {r: {when: {/a/b/c: {is: [bad]}}}}", created(`{"a": "(known after apply)"}`), policy.Deny},
		{"an element that is not known yet is denied", "deny: {r: {when: {/a/*: {is: [bad]}}}}", created(`{"a": ["good", "(known after apply)"]}`), policy.Deny},
		{"another value that is not known is no reason", when, created(`{"a": "good", "b": "(known after apply)"}`), policy.Allow},
		{"a hidden value is denied", when, created(`{"a": "(sensitive)"}`), policy.Deny},
		{"a value with a hidden part is denied", when, plan(hidden), policy.Deny},
		{"a value that is left out is denied", when, plan(large), policy.Deny},
		{"a change without values is denied", when, plan(change(changeset.Create, "x", "a", nil)), policy.Deny},
		{"a move sets no value", when, plan(change(changeset.Move, "x", "a", nil)), policy.Allow},
		{"one bad element is enough", "deny: {r: {when: {/in/*/cidr/*: {is: [0.0.0.0/0, '::/0']}}}}", created(`{"in": [{"cidr": ["10.0.0.0/8"]}, {"cidr": ["10.1.0.0/16", "0.0.0.0/0"]}]}`), policy.Deny},
		{"good elements are permitted", "deny: {r: {when: {/in/*/cidr/*: {is: [0.0.0.0/0, '::/0']}}}}", created(`{"in": [{"cidr": ["10.0.0.0/8"]}]}`), policy.Allow},
		{"an attribute that must have a value and is absent is denied", "deny: {r: {when: {/encrypted: {is_not: [true]}}}}", created(`{"b": 1}`), policy.Deny},
		{"an attribute that has the value is permitted", "deny: {r: {when: {/encrypted: {is_not: [true]}}}}", created(`{"encrypted": true}`), policy.Allow},
		{"an update that does not change the attribute is permitted", "deny: {r: {when: {/encrypted: {is_not: [true]}}}}", plan(change(changeset.Update, "x", "a", values(`{"b": 1}`))), policy.Allow},
		{"numbers are compared by value", "deny: {r: {when: {/port: {is: [22]}}}}", created(`{"port": 22.0}`), policy.Deny},
		{"all conditions must apply", "deny: {r: {when: {/a: {is: [bad]}, /b: {is: [1]}}}}", created(`{"a": "bad", "b": 2}`), policy.Allow},
		{"a key with a slash is reached", "deny: {r: {when: {/labels/example.com~1team: {is: [red]}}}}", created(`{"labels": {"example.com/team": "red"}}`), policy.Deny},
		{"a deletion is judged by what it removes", "deny: {r: {actions: [delete], when: {/protected: {is: [true]}}}}", plan(change(changeset.Delete, "x", "a", values(`{"protected": true}`))), policy.Deny},

		{"an image of a listed registry starts", images, deployed(`[{"image": "registry.example.com/acme/web:1"}]`), policy.Allow},
		{"an image of another registry does not start", images, deployed(`[{"image": "registry.example.com/acme/web:1"}, {"image": "evil.example/web:1"}]`), policy.Deny},
		{"an image without a registry is one of docker.io", "images: ['docker.io/library/*']", deployed(`[{"image": "nginx:1.27"}]`), policy.Allow},
		{"an image without a registry is none of another", images, deployed(`[{"image": "nginx:1.27"}]`), policy.Deny},
		{"an image by tag is denied if digests are listed", "images: ['**@sha256:*']", deployed(`[{"image": "registry.example.com/acme/web:1"}]`), policy.Deny},
		{"an image by digest is permitted if digests are listed", "images: ['**@sha256:*']", deployed(`[{"image": "registry.example.com/acme/web:1@` + digest + `"}]`), policy.Allow},
		{"a local image is denied", "images: ['**']", deployed(`[{"image": "` + strings.Repeat("a", 64) + `"}]`), policy.Deny},
		{"a hidden image is denied", images, deployed(`[{"image": "(sensitive)"}]`), policy.Deny},
		{"hidden containers are denied", images, deployed(`"(known after apply)"`), policy.Deny},
		{"an image with a hidden part is denied", images, plan(partly), policy.Deny},
		{"another hidden value is no reason", images, deployed(`[{"image": "registry.example.com/acme/web:1", "env": [{"name": "A", "value": "(sensitive)"}]}]`), policy.Allow},
		{"the image of a volume is an image", images, plan(change(changeset.Create, "v1 Pod", "a", values(`{"spec": {"volumes": [{"image": {"reference": "evil.example/x:1"}}]}}`))), policy.Deny},
		{"a hook starts an image", images, plan(change(changeset.Run, "batch/v1 Job", "a", values(`{"spec": {"template": {"spec": {"containers": [{"image": "evil.example/x:1"}]}}}}`))), policy.Deny},
		{"an update that sets no image is permitted", images, plan(change(changeset.Update, "apps/v1 Deployment", "a", values(`{"spec": {"replicas": 3}}`))), policy.Allow},
		{"an object whose values are left out could have images", images, plan(omitted("apps/v1 Deployment")), policy.Deny},
		{"a large map has no images", images, plan(omitted("v1 ConfigMap")), policy.Allow},
		{"changes that are not known could have images", images, func(q *policy.Request) { q.Plan = &policy.Plan{Omitted: 1} }, policy.Deny},
		{"a deletion starts nothing", images, plan(change(changeset.Delete, "v1 Pod", "a", values(`{"spec": {"containers": [{"image": "evil.example/x:1"}]}}`))), policy.Allow},
		{"a release has no image of its own", images, plan(change(changeset.Run, "Helm release", "a", nil)), policy.Allow},
		{"a module's deployment starts images", images, plan(change(changeset.Create, "kubernetes_deployment_v1", "a", values(`{"spec": [{"template": [{"spec": [{"container": [{"image": "evil.example/x:1"}]}]}]}]}`))), policy.Deny},
		{"a task definition has images", images, plan(change(changeset.Create, "aws_ecs_task_definition", "a", values(`{"container_definitions": "[{\"image\": \"evil.example/x:1\"}]"}`))), policy.Deny},
		{"a task definition of listed images is permitted", images, plan(change(changeset.Create, "aws_ecs_task_definition", "a", values(`{"container_definitions": "[{\"image\": \"registry.example.com/acme/x:1\"}]"}`))), policy.Allow},
		{"a task definition that is not known yet is denied", images, plan(change(changeset.Create, "aws_ecs_task_definition", "a", values(`{"container_definitions": "(known after apply)"}`))), policy.Deny},
		{"the image of a machine is none of a container", images, plan(change(changeset.Create, "google_compute_instance", "a", values(`{"image": "debian-cloud/debian-12"}`))), policy.Allow},

		{"an apply needs the approval that its plan needed", "approvals: {r: {actions: [delete]}}", func(q *policy.Request) {
			q.Operation, q.Plan = job.OpApply, planOf(change(changeset.Delete, "x", "a", nil))
		}, policy.NeedsApproval},
		{"a plan to destroy needs the approval of a destroy", "approvals: {r: {operations: [destroy]}}", func(q *policy.Request) {
			q.Operation, q.Plan = job.OpPlanDestroy, planOf(change(changeset.Delete, "x", "a", nil))
		}, policy.NeedsApproval},
		{"a plan without changes needs none", "approvals: {r: {actions: [delete]}}", plan(), policy.Allow},
		{"a type whose services the runner does not know gets no whole role", "whole_role: []", plan(change(changeset.Create, "aws_waf_rule", "a", nil)), policy.Deny},
		{"a type that the customer lists gets it", "whole_role: [aws_waf_*]", plan(change(changeset.Create, "aws_waf_rule", "a", nil)), policy.Allow},
		{"a type whose services the runner knows needs no whole role", "whole_role: []", plan(change(changeset.Create, "aws_sqs_queue", "a", nil), change(changeset.Create, "random_id", "a", nil)), policy.Allow},
		{"a move of a type that is not known calls nothing", "whole_role: []", plan(change(changeset.Move, "aws_waf_rule", "a", nil)), policy.Allow},
		{"changes that are not known could get a whole role", "whole_role: []", func(q *policy.Request) { q.Plan = &policy.Plan{Omitted: 1} }, policy.Deny},
		{"without the field, what is not known has the whole role", "types: [terraform]", plan(change(changeset.Create, "aws_waf_rule", "a", nil)), policy.Allow},
		{"changes that are not known need an approval", "approvals: {r: {actions: [delete]}}", func(q *policy.Request) { q.Plan = &policy.Plan{Omitted: 1} }, policy.NeedsApproval},
	} {
		if d := parse(t, c.policy).Decide(ask(job.OpPlan, c.set)); d.Effect != c.want {
			t.Errorf("%s: got %+v, want %s\n%s", c.consequence, d, c.want, c.policy)
		}
	}
}

// A file that is no whole policy is none, and what has none starts nothing.
func TestWhatIsNotAWholePolicyIsNone(t *testing.T) {
	for name, c := range map[string]struct {
		text, code string
		line       int
	}{
		"an empty file":                   {"", "missing-field", 1},
		"no version":                      {"types: [terraform]", "missing-field", 1},
		"a later version":                 {"version: 2", "unknown-version", 1},
		"a field of a later version":      {"version: 1\nbudget: 3", "unknown-field", 2},
		"a field of a rule that is wrong": {"version: 1\ndeny:\n  r:\n    typos: [x]", "unknown-field", 4},
		"a type that is not known":        {"version: 1\ntypes: [pulumi]", "invalid-value", 2},
		"an operation of a runner":        {"version: 1\noperations: [build]", "invalid-value", 2},
		"a list without items and []":     {"version: 1\ntypes:", "missing-value", 2},
		"an empty list in a rule":         {"version: 1\ndeny: {r: {types: []}}", "missing-value", 2},
		"a window without days":           {"version: 1\nwindows: {w: {time_zone: UTC, days: [], from: '01:00', to: '02:00'}}", "missing-value", 2},
		"a window without duration":       {"version: 1\nwindows: {w: {time_zone: UTC, from: '01:00', to: '01:00'}}", "invalid-value", 2},
		"a time zone that is not known":   {"version: 1\nwindows: {w: {time_zone: Europe/Bern, from: '01:00', to: '02:00'}}", "invalid-value", 2},
		"a rule without a condition":      {"version: 1\ndeny: {r: {}}", "missing-field", 2},
		"a path that is no pointer":       {"version: 1\ndeny: {r: {when: {a.b: {is: [1]}}}}", "invalid-value", 2},
		"two conditions on one attribute": {"version: 1\ndeny: {r: {when: {/a: {is: [1], is_not: [2]}}}}", "conflicting-fields", 2},
		"a value that is a map":           {"version: 1\ndeny: {r: {when: {/a: {is: [{}]}}}}", "wrong-type", 2},
		"an image without a registry":     {"version: 1\nimages: [nginx]", "invalid-value", 2},
		"a negative ceiling":              {"version: 1\nceilings: {component: {destroys: -1}}", "invalid-value", 2},
		"a constraint that is none":       {"version: 1\nproviders: {a/b/c: latest}", "invalid-value", 2},
		"a key that is too short":         {"version: 1\nsigners: [AAAA]", "invalid-value", 2},
		"a rule twice":                    {"version: 1\ndeny:\n  r: {types: [x]}\n  r: {types: [y]}", "duplicate-name", 4},
		"an approval of a plan":           {"version: 1\napprovals: {r: {operations: [plan]}}", "invalid-value", 2},
		"a list":                          {"[]", "wrong-type", 1},
		"no YAML":                         {"version: 1\n\t:", "malformed-yaml", 2},
	} {
		p, problems := policy.Parse("p.yaml", []byte(c.text))
		if p != nil || len(problems) == 0 || problems[0].Code != c.code || problems[0].Line != c.line || problems[0].File != "p.yaml" {
			t.Errorf("%s: %v, want %s in line %d", name, problems, c.code, c.line)
		}
		if problems.Err() == nil {
			t.Errorf("%s has no error", name)
		}
	}
	if p, problems := policy.Parse("p.json", []byte(`{"version": 1, "types": ["terraform"]}`)); p == nil || problems.Err() != nil {
		t.Errorf("JSON: %v", problems)
	}
}

// A job's step evaluates the policy twice.
func BenchmarkDecideOn100Changes(b *testing.B) {
	var text strings.Builder
	text.WriteString("version: 1\ndeny:\n")
	for i := range 20 {
		fmt.Fprintf(&text, "  r%d: {types: [aws_%d_*], when: {/a/*/b: {is: [x*]}}}\n", i, i)
	}
	p, problems := policy.Parse("p", []byte(text.String()))
	if p == nil {
		b.Fatal(problems)
	}
	q := policy.Request{Operation: job.OpPlan, Plan: &policy.Plan{}}
	for i := range 100 {
		q.Plan.Changes = append(q.Plan.Changes, change(changeset.Create, fmt.Sprintf("aws_%d_x", i%20), "a", values(`{"a": [{"b": "y"}, {"b": "z"}]}`)))
	}
	for b.Loop() {
		if d := p.Decide(q); d.Effect != policy.Allow {
			b.Fatal(d)
		}
	}
}
