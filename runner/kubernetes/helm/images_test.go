package helm_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/policy"
	"github.com/fairlead/fairlead/runner/kubernetes/helm"
	"github.com/fairlead/fairlead/runner/kubernetes/podimage"
	"github.com/fairlead/fairlead/runner/plugin"
)

const (
	ownRegistry = "registry.example.com/acme/ins_1/"
	ownImage    = ownRegistry + "bundle@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	laterImage  = ownRegistry + "bundle@sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// suspended is an object with a pod that the cluster never starts.
func suspended(name, more, image string) string {
	return "apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: " + name + "\n" + more + "spec:\n  suspend: true\n  schedule: 0 3 * * *\n  jobTemplate:\n    spec:\n      template:\n        spec:\n" +
		"          restartPolicy: Never\n          containers:\n          # keep this comment\n          - name: main\n            image: " + image + "\n"
}

func closedChart(t *testing.T) *helm.Chart {
	t.Helper()
	return chart(t, "1.0.0", files{
		"values.yaml":           "image: nginx:1.27\n",
		"templates/job.yaml":    suspended("job", "", "{{ .Values.image }}") + "---\n" + configMap("text", "random", "{{ randAlphaNum 16 | quote }}", "image", "nginx:1.27"),
		"templates/hook.yaml":   suspended("hook", "  annotations: {helm.sh/hook: post-delete}\n", "\"nginx:1.27\""),
		"templates/NOTES.txt":   "The image is nginx:1.27, in [brackets: as no YAML has.\n",
		"crds/definition.yaml":  imagesKind,
		"templates/_helper.tpl": "{{- define \"image\" }}{{ end }}",
	})
}

const imagesKind = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: images.bundle.example.com}\nspec:\n  group: bundle.example.com\n  names: {kind: Image, plural: images}\n  scope: Namespaced\n" +
	"  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n"

// The plan and the record of a release have the images of the install's registry, in hooks too, and everything else as the chart renders
// it. Another copy of an image is a change, and nothing else is rendered again without need.
func TestReleaseHasTheImagesOfTheBundle(t *testing.T) {
	w := newWorld(t)
	c := closedChart(t)
	with := func(image string) *helm.Engine {
		e := w.engine()
		e.Images = podimage.New(map[string]string{"docker.io/library/nginx:1.27": image}, ownRegistry)
		return e
	}
	plan := func(e *helm.Engine) helm.Planned {
		p, err := e.Plan(t.Context(), c, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	w.apply(plan(with(ownImage)))
	rel := w.record()
	if !strings.Contains(rel.Manifest, "# keep this comment\n          - name: main\n            image: \""+ownImage+"\"\n") || !strings.Contains(rel.Manifest, "image: nginx:1.27") ||
		strings.Count(rel.Manifest, ownImage) != 1 || len(rel.Hooks) != 1 || !strings.Contains(rel.Hooks[0].Manifest, ownImage) {
		t.Errorf("the release has\n%s\n%+v", rel.Manifest, rel.Hooks)
	}
	if p := plan(with(ownImage)); !p.NoOp {
		t.Errorf("without a change, the plan has %s", rows(p))
	}
	p := plan(with(laterImage))
	if !strings.Contains(rows(p), "update CronJob") {
		t.Errorf("with another copy, the plan has %s", rows(p))
	}
	w.apply(p)
	if got := w.record().Manifest; !strings.Contains(got, laterImage) || strings.Contains(got, ownImage) {
		t.Errorf("the release has\n%s", got)
	}
}

// An image that nothing replaces fails the plan, which names image, object and file.
func TestImageOutsideOfTheBundleFailsThePlan(t *testing.T) {
	w := newWorld(t)
	e := w.engine()
	e.Images = podimage.New(map[string]string{"docker.io/library/nginx:1.28": ownImage}, ownRegistry)
	_, err := e.Plan(t.Context(), closedChart(t), nil, false)
	if plugin.ReasonOf(err) != fairlead.ReasonImageNotInBundle || !strings.Contains(err.Error(), "templates/job.yaml: the CronJob/job has the image nginx:1.27") || !strings.Contains(err.Error(), "templates/hook.yaml") {
		t.Errorf("the error is %v", err)
	}
	e.Images = podimage.New(map[string]string{"docker.io/library/nginx:1.27": ownImage}, ownRegistry)
	folded := chart(t, "1.0.0", files{"templates/job.yaml": suspended("job", "", ">-\n              nginx:1.27")})
	if _, err := e.Plan(t.Context(), folded, nil, false); plugin.ReasonOf(err) != fairlead.ReasonChartInvalid || !strings.Contains(err.Error(), "nginx:1.27") {
		t.Errorf("a form that cannot be replaced: %v", err)
	}
}

// A customer's policy finds the images of a chart in its change set: those of objects and of hooks.
func TestPolicyJudgesTheImagesOfAChart(t *testing.T) {
	w := newWorld(t)
	c := chart(t, "1.0.0", files{
		"templates/job.yaml":  suspended("job", "", "registry.example.com/acme/web:1"),
		"templates/hook.yaml": suspended("hook", "  annotations: {helm.sh/hook: pre-install}\n", "evil.example/hook:1"),
	})
	planned, err := w.engine().Plan(t.Context(), c, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for images, want := range map[string]string{
		"[registry.example.com/acme/**, evil.example/hook:1]": "",
		"[registry.example.com/acme/**]":                      `it does not list the image "evil.example/hook:1" of "hook pre-install CronJob/NS/hook"`,
		"['evil.example/**']":                                 `it does not list the image "registry.example.com/acme/web:1" of "CronJob/NS/job"`,
	} {
		p, problems := policy.Parse("policy.yaml", []byte("version: 1\nimages: "+images))
		if p == nil {
			t.Fatal(problems)
		}
		d := p.Decide(policy.Request{Operation: job.OpPlan, Type: "helm", Plan: &policy.Plan{Changes: planned.Changes}})
		if want := strings.Replace(want, "NS", w.ns, 1); d.Reason != want {
			t.Errorf("%s: %+v, want %q", images, d, want)
		}
	}
}

// The images of a chart are found without a cluster: those of hooks, of installs and of upgrades.
func TestImagesOfAChartAreFoundWithoutACluster(t *testing.T) {
	c := chart(t, "1.0.0", files{
		"templates/a.yaml":   suspended("a", "", "{{ .Values.image | default \"nginx:1\" }}"),
		"templates/b.yaml":   "{{- if .Release.IsUpgrade }}\n" + suspended("b", "", "nginx:2") + "{{- end }}\n{{- if .Release.IsInstall }}\n---\n" + suspended("c", "", "nginx:3") + "{{- end }}\n",
		"templates/h.yaml":   suspended("h", "  annotations: {helm.sh/hook: test}\n", "nginx:4"),
		"templates/l.yaml":   "{{- if not (lookup \"v1\" \"Secret\" \"default\" \"x\") }}\n" + suspended("l", "", "nginx:5") + "{{- end }}\n",
		"values.schema.json": `{"properties": {"size": {"type": "integer"}}}`,
	})
	found, err := helm.Images(c, "web", "acme", map[string]any{"image": "nginx:0", "size": "fairlead-unknown"})
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, i := range found {
		all += i.Place + " " + i.Object + " " + i.Image + "\n"
	}
	for _, want := range []string{"a.yaml CronJob/a nginx:0", "b.yaml CronJob/b nginx:2", "b.yaml CronJob/c nginx:3", "h.yaml CronJob/h nginx:4", "l.yaml CronJob/l nginx:5"} {
		if !strings.Contains(all, want) {
			t.Errorf("the images are\n%s, without %s", all, want)
		}
	}
	if _, err := helm.Images(chart(t, "1.0.0", files{"templates/a.yaml": "{{ fail \"no\" }}"}), "web", "acme", nil); plugin.ReasonOf(err) != fairlead.ReasonChartInvalid {
		t.Errorf("a chart that does not render: %v", err)
	}
}
