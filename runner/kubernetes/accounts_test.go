package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helmkube "helm.sh/helm/v4/pkg/kube"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/component"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/plugin"
	"github.com/fairlead/fairlead/tools/testserver"
)

const (
	chartFolder = "../../infra/charts/fairlead-runner"
	jobsAccount = "acme-fairlead-runner-jobs"
	planAccount = jobsAccount + "-read-only"
)

// chartRunner is a release of the runner's chart, without agents, in a namespace of its own.
type chartRunner struct {
	*testing.T
	cfg    *rest.Config // of the administrator
	admin  kubernetes.Interface
	ns     string // of the release and of the service accounts
	helm   *action.Configuration
	values map[string]any
}

// connected returns a chartRunner without a release.
func connected(t *testing.T) *chartRunner {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", own.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	r := &chartRunner{T: t, cfg: cfg}
	if r.admin, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// installRunner installs the chart as Helm does. jobs are the chart's values below "jobs".
func installRunner(t *testing.T, jobs map[string]any) *chartRunner {
	t.Helper()
	r, kubeconfig := connected(t), own.Kubeconfig(t)
	r.ns = r.newNamespace("runner-")
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &r.ns
	r.helm = action.NewConfiguration()
	if err := r.helm.Init(flags, r.ns, "secret"); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	i := action.NewInstall(r.helm)
	i.ReleaseName, i.Namespace, i.WaitStrategy, i.Timeout = "acme", r.ns, helmkube.StatusWatcherStrategy, 2*time.Minute
	r.values = map[string]any{
		"controlPlane": map[string]any{"url": "https://fairlead.example.com"}, "replicas": 0, "jobs": jobs,
		"runner": map[string]any{"id": "run_01hxexample0000000000000000", "trustedKeys": []any{"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}},
		"image":  map[string]any{"digest": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
	}
	if _, err := i.Run(c, r.values); err != nil {
		t.Fatalf("install the chart: %v", err)
	}
	t.Cleanup(func() {
		u := action.NewUninstall(r.helm)
		u.WaitStrategy, u.Timeout = helmkube.StatusWatcherStrategy, 2*time.Minute
		if _, err := u.Run("acme"); err != nil {
			t.Errorf("uninstall the chart: %v", err)
		}
	})
	return r
}

// upgrade upgrades the release with other values below "jobs".
func (r *chartRunner) upgrade(jobs map[string]any) {
	r.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		r.Fatal(err)
	}
	r.values["jobs"] = jobs
	u := action.NewUpgrade(r.helm)
	u.Namespace, u.WaitStrategy, u.Timeout = r.ns, helmkube.StatusWatcherStrategy, 2*time.Minute
	if _, err := u.Run("acme", c, r.values); err != nil {
		r.Fatalf("upgrade the chart: %v", err)
	}
}

// may reports whether a service account of the release may do something.
func (r *chartRunner) may(account, verb, resource, namespace string) bool {
	r.Helper()
	review, err := r.admin.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + r.ns + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Namespace: namespace}}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return review.Status.Allowed
}

func (r *chartRunner) newNamespace(prefix string) string {
	r.Helper()
	ns, err := r.admin.CoreV1().Namespaces().Create(r.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	return ns.Name
}

// as returns a configuration of a service account of the release.
func (r *chartRunner) as(account string) *rest.Config {
	r.Helper()
	token, err := r.admin.CoreV1().ServiceAccounts(r.ns).CreateToken(r.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(r.cfg)
	cfg.BearerToken, cfg.QPS = token.Status.Token, -1
	return cfg
}

// kubeconfigOf writes a kubeconfig of a service account of the release.
func (r *chartRunner) kubeconfigOf(account string) string {
	r.Helper()
	cfg := r.as(account)
	api := clientcmdapi.NewConfig()
	api.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, InsecureSkipTLSVerify: true}
	api.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	api.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	api.CurrentContext = "x"
	path := filepath.Join(r.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*api, path); err != nil {
		r.Fatal(err)
	}
	return path
}

// awaitPolicy waits until the API server enforces the policy, by the dry run that the chart's notes name, in a namespace in which the
// account of plans has permissions.
func (r *chartRunner) awaitPolicy(ns string) {
	r.Helper()
	plans, err := kubernetes.NewForConfig(r.as(planAccount))
	if err != nil {
		r.Fatal(err)
	}
	testserver.Until(r, "the policy refuses a request of the account of plans", func() bool {
		_, err := plans.CoreV1().ConfigMaps(ns).Create(r.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-policy-check"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), byPolicy)
	})
}

// jobs runs the jobs of one component, each as the account of its role.
type jobs struct {
	*chartRunner
	ns          string // of the install
	kind, files string
	data        string
	vars        map[string]string
	kubeconfigs map[component.Role]string
}

func (r *chartRunner) component(kind, files, ns string, vars map[string]string) *jobs {
	j := &jobs{chartRunner: r, kind: kind, files: files, ns: ns, data: r.TempDir(), vars: vars, kubeconfigs: map[component.Role]string{}}
	for _, role := range []component.Role{component.ReadOnly, component.Deploy, component.Deprovision} {
		j.kubeconfigs[role] = r.kubeconfigOf(jobsAccount + "-" + string(role))
	}
	return j
}

// run runs one job. plan is the result of the plan that it applies; nil: the job is a plan.
func (j *jobs) run(op, by string, plan *plugin.Result) plugin.Result {
	j.Helper()
	row, _ := component.Of(j.kind)
	i := slices.IndexFunc(row.Operations, func(o component.Operation) bool { return string(o.Name) == op })
	s := &site{T: j.T, kubeconfig: j.kubeconfigs[row.Operations[i].Role], ns: j.ns, admin: j.admin}
	sp := s.spec(j.kind, op)
	sp.Component, sp.State.Key = j.kind, "ins_1/"+j.kind
	sp.Artifact.Digest, sp.Vars = j.files, map[string]events.SpecVar{}
	for name, value := range j.vars {
		text, err := json.Marshal(value)
		if err != nil {
			j.Fatal(err)
		}
		sp.Vars[name] = events.SpecVar{Value: text, Sensitive: name == "password"}
	}
	if plan != nil {
		sp.Vars, sp.Plan = nil, &events.PlanRef{Job: fairlead.JobID("job_" + by), Digest: plan.Plan.Digest}
	}
	res, log, err := s.do(j.data, sp)
	if err != nil {
		j.Fatalf("%s of %s in %s: %v\n%s", op, j.kind, j.ns, err, log)
	}
	return res
}

// rows renders a plan's changes: "create ConfigMap/NS/a; update …". The install's namespace is NS.
func (j *jobs) rows(res plugin.Result) string {
	var all []string
	for _, c := range res.Plan.ChangeSet.Changes {
		row := string(c.Action) + " " + strings.ReplaceAll(c.Address, j.ns, "NS")
		if c.Unverified {
			row += " unverified"
		}
		all = append(all, row)
	}
	return strings.Join(all, "; ")
}

// withExample adds the components of examples/kubernetes to the sources.
func withExample(t *testing.T) {
	t.Helper()
	for _, name := range []string{"base", "web"} {
		root := filepath.Join("../../examples/kubernetes", name)
		files := map[string]string{}
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			rel, _ := filepath.Rel(root, path)
			files[rel] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		sources["sha256:example-"+name] = files
	}
}

// The example of the repository is planned, applied and destroyed by three accounts of the chart. The server checks each change of
// a plan, although the plan's account may change nothing.
func TestAccountOfPlansGetsVerifiedPlans(t *testing.T) {
	withExample(t)
	for name, tt := range map[string]struct {
		jobs        func(ns string) map[string]any
		base, web   string // sources
		first, then string // changes of the plans of base, before and after a first apply
		update      string // changes of the second plan of web
		gone        string // first changes of the destroy of base
	}{
		"the example, with all permissions of the cluster": {
			func(string) map[string]any { return map[string]any{"clusterAdmin": true} }, "sha256:example-base", "sha256:example-web",
			"import Namespace/NS; create ServiceAccount/NS/web; create Secret/NS/login", "update Secret/NS/login", "update ConfigMap/NS/helm",
			"delete Secret/NS/login; delete ServiceAccount/NS/web; delete Namespace/NS",
		},
		"objects and a chart, with permissions of one namespace": {
			func(ns string) map[string]any { return map[string]any{"namespaces": []any{ns}} }, "sha256:objects", "sha256:chart",
			"create ConfigMap/NS/settings; create Secret/NS/login", "update Secret/NS/login", "update Secret/NS/login; update ConfigMap/NS/settings",
			"delete Secret/NS/login; delete ConfigMap/NS/settings",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bare := connected(t)
			ns, other := bare.newNamespace("install-"), bare.newNamespace("install-")
			values := tt.jobs(ns)
			if list, ok := values["namespaces"].([]any); ok {
				values["namespaces"] = append(list, other)
			}
			r := installRunner(t, values)
			r.awaitPolicy(ns)
			base := r.component(component.Manifest, tt.base, ns, map[string]string{"namespace": ns, "password": "first-password", "host": "a.example", "port": "1"})
			web := r.component(component.Helm, tt.web, other, map[string]string{"url": "https://a.example", "password": "first-password", "host": "a.example", "port": "1"})
			if tt.web == "sha256:example-web" {
				web.vars["replicas"] = "0" // the cluster has no nodes
				delete(web.vars, "port")
			}

			before := r.objects()
			first := base.run("plan", "", nil)
			if got := base.rows(first); got != tt.first {
				t.Errorf("the first plan has %q, want %q", got, tt.first)
			}
			chart := web.run("plan", "", nil)
			if got := web.rows(chart); strings.Contains(got, "unverified") || !strings.Contains(got, "create ConfigMap/NS/") {
				t.Errorf("the first plan of the chart has %q", got)
			}
			if after := r.objects(); !maps.Equal(before, after) {
				t.Errorf("the plans changed the cluster: %s", difference(before, after))
			}
			base.run("apply", "plan", &first)
			web.run("apply", "plan", &chart)

			base.vars["password"], web.vars["password"] = "second-password", "second-password"
			web.vars["url"], web.vars["host"] = "https://b.example", "b.example"
			before = r.objects()
			if got := base.rows(base.run("plan", "", nil)); got != tt.then {
				t.Errorf("the second plan has %q, want %q", got, tt.then)
			}
			if got := web.rows(web.run("plan", "", nil)); got != tt.update {
				t.Errorf("the second plan of the chart has %q, want %q", got, tt.update)
			}
			gone, removed := base.run("plan-destroy", "", nil), web.run("plan-destroy", "", nil)
			if after := r.objects(); !maps.Equal(before, after) {
				t.Errorf("the plans changed the cluster: %s", difference(before, after))
			}
			if got := base.rows(gone); !strings.HasPrefix(got, tt.gone) {
				t.Errorf("the plan of the destroy has %q, want %q first", got, tt.gone)
			}
			web.run("destroy", "plan-destroy", &removed)
			base.run("destroy", "plan-destroy", &gone)
			for _, name := range []string{ns, other} {
				if left, err := r.admin.CoreV1().Secrets(name).List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
					t.Errorf("the destroy left %d Secrets in %s (%v)", len(left.Items), name, err)
				}
			}
		})
	}
}

// A release with one account changes to accounts per role: the one account loses its permissions, and the others have them. The agent has
// none of them, before and after.
func TestUpgradeMovesPermissionsToTheRoles(t *testing.T) {
	ns := connected(t).newNamespace("install-")
	r := installRunner(t, map[string]any{"accountPerRole": false, "namespaces": []any{ns}})
	type permission struct {
		account, verb string
		want          bool
	}
	check := func(when string, all ...permission) {
		t.Helper()
		for _, p := range all {
			testserver.Until(t, when+": the permissions of "+p.account, func() bool { return r.may(p.account, p.verb, "configmaps", ns) == p.want })
		}
	}
	const agent = "acme-fairlead-runner"
	check("one account", permission{jobsAccount, "delete", true}, permission{planAccount, "get", false}, permission{agent, "get", false})
	r.upgrade(map[string]any{"namespaces": []any{ns}, "planDryRun": false})
	check("accounts per role", permission{jobsAccount, "get", false}, permission{jobsAccount + "-deploy", "delete", true}, permission{jobsAccount + "-deprovision", "delete", true},
		permission{planAccount, "get", true}, permission{planAccount, "delete", false}, permission{agent, "get", false})
	r.upgrade(map[string]any{"namespaces": []any{ns}})
	check("with the policy", permission{planAccount, "delete", true}, permission{agent, "get", false})
	r.awaitPolicy(ns)
}

// operator has what the objects of an operator need: permissions that the account of plans itself does not have, a kind, an object of
// it, and a webhook. NS is the install's namespace.
const operator = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator-NS}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator-NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: operator, namespace: NS}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.NS.example.com}
spec: {group: NS.example.com, scope: Namespaced, names: {kind: Gadget, plural: gadgets}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer, default: 1}, colour: {type: string}}}}}}}]}
---
apiVersion: NS.example.com/v1
kind: Gadget
metadata: {name: g}
spec: {colour: "${vars.host}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: operator-NS}
webhooks: [{name: operator.example.com, sideEffects: None, failurePolicy: Ignore, admissionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1/none"}, objectSelector: {matchLabels: {none: none}}}]
`

// The server checks what an operator needs, also permissions that the account of plans does not have: it may bind and escalate, and
// the policy refuses the write. Admission does not check the configurations of webhooks, so the account may not write them, also not
// in a dry run, and the runner compares them.
func TestPlanOfAnOperatorIsVerified(t *testing.T) {
	ns := connected(t).newNamespace("install-")
	group := ns + ".example.com"
	sources["sha256:operator"] = map[string]string{"operator.yaml": strings.ReplaceAll(operator, "NS", ns)}
	r := installRunner(t, map[string]any{"clusterAdmin": true, "customGroups": []any{group}})
	r.awaitPolicy(ns)
	c := r.component(component.Manifest, "sha256:operator", ns, map[string]string{"host": "blue"})
	first := c.run("plan", "", nil)
	want := "create CustomResourceDefinition/gadgets.NS.example.com; create ClusterRole/operator-NS; create ClusterRoleBinding/operator-NS; " +
		"create Gadget.NS.example.com/NS/g unverified; create ValidatingWebhookConfiguration/operator-NS unverified"
	if got := c.rows(first); got != want {
		t.Errorf("the plan has %q, want %q", got, want)
	}
	c.run("apply", "plan", &first)
	c.vars["host"] = "red"
	if got := c.rows(c.run("plan", "", nil)); got != "update Gadget.NS.example.com/NS/g" {
		t.Errorf("the second plan has %q", got)
	}
	gone := c.run("plan-destroy", "", nil)
	c.run("destroy", "plan-destroy", &gone)
	if _, err := r.admin.RbacV1().ClusterRoles().Get(t.Context(), "operator-"+ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the destroy left the ClusterRole (%v)", err)
	}
}

// Without the policy a plan has only permissions that read. It compares by itself, and each change names the reason.
func TestPlansWithoutThePolicyAreUnverified(t *testing.T) {
	for _, kind := range []string{component.Manifest, component.Helm} {
		t.Run(kind, func(t *testing.T) {
			bare := connected(t)
			ns, other := bare.newNamespace("install-"), bare.newNamespace("seeds-")
			r := installRunner(t, map[string]any{"namespaces": []any{ns, other}, "planDryRun": false})
			web := r.component(kind, map[string]string{component.Manifest: "sha256:objects", component.Helm: "sha256:chart"}[kind], ns,
				map[string]string{"password": "first-password", "host": "a.example", "port": "1"})
			before := r.objects()
			first := web.run("plan", "", nil)
			web.unverified(first, "create ConfigMap/NS/settings unverified", "create Secret/NS/login unverified")
			if after := r.objects(); !maps.Equal(before, after) {
				t.Errorf("the plan changed the cluster: %s", difference(before, after))
			}
			web.run("apply", "plan", &first)
			web.vars["password"] = "second-password"
			web.unverified(web.run("plan", "", nil), "update Secret/NS/login unverified")
			r.seed(other)
			r.refusesWrites(r.as(planAccount), other, "")
			gone := web.run("plan-destroy", "", nil)
			web.run("destroy", "plan-destroy", &gone)
		})
	}
}

// unverified checks that a plan has the rows, and that each names the reason for which the server did not check it.
func (j *jobs) unverified(res plugin.Result, rows ...string) {
	j.Helper()
	got := j.rows(res)
	for _, row := range rows {
		if !strings.Contains(got, row) {
			j.Errorf("the plan has %q, want %q", got, row)
		}
	}
	i := slices.IndexFunc(res.Plan.ChangeSet.Changes, func(c changeset.Change) bool { return !strings.Contains(c.Reason, "dry run") })
	if i >= 0 {
		j.Errorf("a change does not name its reason: %+v", res.Plan.ChangeSet.Changes[i])
	}
}
