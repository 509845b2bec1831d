// Package charts_test renders the chart with Helm's engine. runner/internal/charttest
// tests on a real API server that it can be installed, upgraded and removed, and that
// the installed runner works.
package charts_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/runnerspec/runnerspectest"
	"github.com/fairlead/fairlead/tools/page"
)

const folder = "fairlead-runner"

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func valuesOf(t *testing.T, name string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := yaml.UnmarshalStrict(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// policies is what a cluster serves that has policies of admission.
const policies = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

func render(c *chart.Chart, values map[string]any) (map[string]string, error) {
	return renderFor(c, values, policies)
}

// renderFor renders the chart for a cluster that serves these kinds in addition to the usual groups.
func renderFor(c *chart.Chart, values map[string]any, kinds ...string) (map[string]string, error) {
	serves := common.DefaultCapabilities.Copy()
	serves.APIVersions = append(slices.Clone(serves.APIVersions), kinds...)
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "acme", Namespace: "fairlead", Revision: 1, IsInstall: true}, serves)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	for name, text := range files { // the seed is another one each time
		files[name] = madeSeed.ReplaceAllString(text, "  seed: RANDOM")
	}
	return files, err
}

// madeSeed matches a seed of 64 letters and digits, in base64.
var madeSeed = regexp.MustCompile(`(?m)^  seed: [A-Za-z0-9+/]{86}==$`)

// variants returns the names of the values files in testdata.
func variants() []string {
	return []string{"default", "eks", "aks", "gke", "key", "namespaces", "groups"}
}

func rendered(t *testing.T, name string) map[string]string {
	t.Helper()
	files, err := render(load(t), valuesOf(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// UPDATE_GOLDEN=1 writes the rendered chart.
func TestChartRendersToGolden(t *testing.T) {
	for _, name := range variants() {
		t.Run(name, func(t *testing.T) {
			var all strings.Builder
			files := rendered(t, name)
			for _, path := range slices.Sorted(maps.Keys(files)) {
				if text := strings.TrimSpace(files[path]); text != "" {
					all.WriteString("# " + filepath.Base(path) + "\n" + text + "\n---\n")
				}
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || all.String() != string(want) {
				t.Errorf("%s differs from the rendered chart (%v); UPDATE_GOLDEN=1 writes it\n%s", golden, err, all.String())
			}
		})
	}
}

func TestLint(t *testing.T) {
	for _, name := range variants() {
		l := lint.RunAll(folder, valuesOf(t, name), "fairlead")
		for _, m := range l.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// set returns a copy of the values with a value at a path.
func set(values map[string]any, path string, value any) map[string]any {
	out := maps.Clone(values)
	if out == nil {
		out = map[string]any{}
	}
	name, rest, deeper := strings.Cut(path, ".")
	if deeper {
		inner, _ := out[name].(map[string]any)
		value = set(inner, rest, value)
	}
	out[name] = value
	return out
}

// rule returns the rules of a role with one rule.
func rule(group, resource string, verbs ...any) []any {
	return []any{map[string]any{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}}
}

func TestInvalidValuesAreRefused(t *testing.T) {
	tests := []struct {
		consequence, path string
		value             any
		want              string // part of the error
	}{
		{"an unknown value", "controlplane", map[string]any{"url": "https://x"}, "controlplane"},
		{"a nested unknown value", "jobs.clusteradmin", true, "clusteradmin"},
		{"no control plane", "controlPlane.url", "", "/controlPlane/url"},
		{"a control plane with a password in its URL", "controlPlane.url", "https://me:secret@x.example", "/controlPlane/url"},
		{"an image by tag, which can change", "image.tag", "v1", "tag"},
		{"an image without a digest", "image.digest", "", "/image/digest"},
		{"a tag in place of the digest", "image.digest", "v1.2.3", "/image/digest"},
		{"a tag in the repository", "image.repository", "ghcr.io/fairlead/runner:v1@sha256", "/image/repository"},
		{"no runner id: the agent has no identity", "runner.id", "", "/runner/id"},
		{"no keys: it would run jobs with any signature", "runner.trustedKeys", []any{}, "/runner/trustedKeys"},
		{"an invalid key", "runner.trustedKeys", []any{"abc"}, "/runner/trustedKeys/0"},
		{"an unknown identity type", "identity.type", "password", "/identity/type"},
		{"an AWS role without a region", "identity.type", "aws-iam", "/identity/aws/region"},
		{"a key pair without a volume: it is lost with the pod, and the token works once", "identity", map[string]any{"type": "key", "key": map[string]any{"existingSecret": "x"}}, "persistence"},
		{"a key pair without its token", "identity.type", "key", "/identity/key/existingSecret"},
		{"a token in the values, which Helm stores", "identity.key.token", "fle_secret", "token"},
		{"a token lifetime below the kubelet's minimum", "identity.oidc.expirationSeconds", 60, "/identity/oidc/expirationSeconds"},
		{"a reserved label", "jobs.labels", map[string]any{"fairlead.dev/attempt": "x"}, "fairlead.dev/attempt"},
		{"a label with a comma, which would split it", "jobs.labels", map[string]any{"a": "b,c=d"}, "/jobs/labels/a"},
		{"an invalid amount of memory", "jobs.resources.memoryLimit", "2 Gi", "/jobs/resources/memoryLimit"},
		{"an invalid number of CPUs", "jobs.resources.cpuLimit", "two", "/jobs/resources/cpuLimit"},
		{"an invalid duration", "jobs.startTimeout", "5", "/jobs/startTimeout"},
		{"an overlay that is not a pod's", "jobs.podTemplate", map[string]any{"containers": []any{}}, "/jobs/podTemplate"},
		{"a job image without a digest", "jobs.image.repository", "registry.example/runner", "/jobs/image/digest"},
		{"a role that is not an ARN", "workloadIdentity.aws.jobRoleARN", "jobs", "/workloadIdentity/aws/jobRoleARN"},
		{"a role of an operation that is not an ARN", "workloadIdentity.aws.jobRoleARNs.readOnly", "plans", "/workloadIdentity/aws/jobRoleARNs/readOnly"},
		{"a role of an operation that does not exist", "workloadIdentity.aws.jobRoleARNs.plan", "arn:aws:iam::123456789012:role/plans", "'plan'"},
		{"a client id that is not a UUID", "workloadIdentity.azure.jobClientID", "jobs", "/workloadIdentity/azure/jobClientID"},
		{"an account that is not a Google service account", "workloadIdentity.gcp.jobServiceAccount", "jobs@acme.com", "/workloadIdentity/gcp/jobServiceAccount"},
		{"a port that needs root", "status.port", 80, "/status/port"},
		{"several agents on one volume", "persistence", map[string]any{"enabled": true}, "/replicas"},
		{"text instead of a boolean: \"false\" would be true", "jobs.clusterAdmin", "false", "/jobs/clusterAdmin"},
		{"a name that is not a namespace's", "jobs.namespaces", []any{"Shop"}, "/jobs/namespaces/0"},
		{"a group of Kubernetes itself, whose kinds include subresources that run programs", "jobs.customGroups", []any{"*"}, "/jobs/customGroups/0"},
		{"a secret in the values, which Helm stores", "secrets", map[string]any{"TOKEN": "hush-hush"}, "/secrets/TOKEN"},
		{"a prefix that EKS refuses in groups of access entries", "jobs.groupPrefix", "eks-acme", "/jobs/groupPrefix"},
		{"groups per role without accounts per role", "jobs", map[string]any{"groupPrefix": "acme", "accountPerRole": false}, "jobs.groupPrefix"},
		{"AWS roles per operation without accounts per role: a plan would have the role of an apply", "jobs.accountPerRole", false, "jobRoleARNs"},
		{"a Secret without its key", "secrets", map[string]any{"TOKEN": "kubernetes:shop"}, "/secrets/TOKEN"},
		{"a name that no variable can have", "secrets", map[string]any{"my-token": "kubernetes:shop/token"}, "my-token"},
		{"all resources of the core group: a plan that may read nodes/proxy runs programs", "jobs.clusterRules", rule("", "*", "get"), "jobs.clusterRules"},
		{"all resources of all groups", "jobs.rules", rule("*", "*", "*"), "jobs.rules"},
	}
	c, base := load(t), valuesOf(t, "default")
	for _, tt := range tests {
		t.Run(tt.consequence, func(t *testing.T) {
			values := set(base, tt.path, tt.value)
			switch tt.path {
			case "persistence":
				values = set(values, "replicas", 2)
			case "jobs.accountPerRole":
				values = set(values, "workloadIdentity.aws.jobRoleARNs", map[string]any{"readOnly": "arn:aws:iam::123456789012:role/plans"})
			}
			if _, err := render(c, values); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want something about %s", err, tt.want)
			}
		})
	}
	// A subchart gets the parent's global values.
	if _, err := render(c, set(base, "global", map[string]any{"any": "thing"})); err != nil {
		t.Error(err)
	}
}

func deployment(t *testing.T, files map[string]string) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(files[folder+"/templates/deployment.yaml"]), &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// The chart sets only declared variables with valid values. For each variable that it
// does not set, the table has the reason.
func TestChartSetsDeclaredEnvironment(t *testing.T) {
	const ( // why the chart does not set a variable
		elsewhere  = "it does not apply in a pod"
		enough     = "its default is right in a pod"
		inThisFile = "the chart gives it in a file"
		platform   = "the platform sets it"
	)
	left := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "traces are off", "FAIRLEAD_ENROLMENT_TOKEN": inThisFile, "FAIRLEAD_DRAIN_FOR": enough,
		"FAIRLEAD_TOFU": "the image sets it", "FAIRLEAD_MAKE_INSTALL_KEY": "a seed in the pod's folder would be lost with the pod", "FAIRLEAD_PLUGINS": "the image has them beside the runner", "FAIRLEAD_PLUGIN_CACHE": elsewhere, "FAIRLEAD_TF_CLI_CONFIG_FILE": elsewhere, "FAIRLEAD_PASS_ENV": elsewhere,
		"FAIRLEAD_ISOLATION": elsewhere, "FAIRLEAD_SHARED_PROCESS": elsewhere, "FAIRLEAD_OWNER_TOKEN_FILE": elsewhere, "FAIRLEAD_READABLE": elsewhere, "FAIRLEAD_WRITABLE": elsewhere, "FAIRLEAD_PRIVATE": elsewhere, "FAIRLEAD_MODE_PARAMETER": elsewhere, "FAIRLEAD_WARM_TASKS": elsewhere,
		"FAIRLEAD_OIDC_SOURCE": enough, "FAIRLEAD_OIDC_AUDIENCE": "the projected token has it", "ACTIONS_ID_TOKEN_REQUEST_URL": elsewhere,
		"ACTIONS_ID_TOKEN_REQUEST_TOKEN": elsewhere, "GCE_METADATA_HOST": platform, "AZURE_POD_IDENTITY_AUTHORITY_HOST": platform, "AZURE_CLIENT_ID": platform,
	}
	declared := map[string]bool{"AWS_REGION": true, "HTTP_PROXY": true, "HTTPS_PROXY": true, "NO_PROXY": true}
	for _, cfg := range []any{&config.Runner{}, &config.OIDC{}} {
		for _, v := range config.Variables(cfg) {
			declared[v.Name] = true
		}
	}
	given := map[string]bool{}
	for name, values := range map[string]map[string]any{"default": valuesOf(t, "default"), "eks": valuesOf(t, "eks"), "gke": valuesOf(t, "gke"), "key": valuesOf(t, "key"), "full": full(t)} {
		files, err := render(load(t), values)
		if err != nil {
			t.Fatal(err)
		}
		var environ []string
		for _, v := range deployment(t, files).Spec.Template.Spec.Containers[0].Env {
			if strings.HasPrefix(v.Name, runnerspec.GivenPrefix) { // the seed, see TestAgentAcceptsRenderedFile
				continue
			}
			if !declared[v.Name] {
				t.Errorf("%s: nothing declares %s", name, v.Name)
			}
			given[v.Name] = true
			environ = append(environ, v.Name+"="+v.Value)
		}
		for _, cfg := range []any{&config.Runner{}, &config.OIDC{}} {
			fs := flag.NewFlagSet("test", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			if err := config.Load(cfg, fs, nil, environ); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name := range declared {
		if !given[name] && left[name] == "" {
			t.Errorf("the chart does not set %s, and the table has no reason", name)
		}
		if given[name] && left[name] != "" {
			t.Errorf("the chart sets %s, but its row gives a reason not to", name)
		}
	}
}

// A control plane on AWS has two keys, and the value of ${install.trusted_keys} in app.yaml is both, separated by a comma.
func TestOneItemCanBeSeveralKeys(t *testing.T) {
	a, b := strings.Repeat("a", 43)+"=", strings.Repeat("b", 43)+"="
	for _, keys := range [][]any{{a + "," + b}, {a, b}} {
		files, err := render(load(t), set(valuesOf(t, "default"), "runner.trustedKeys", keys))
		if err != nil {
			t.Errorf("%q are refused: %v", keys, err)
			continue
		}
		env := deployment(t, files).Spec.Template.Spec.Containers[0].Env
		if !slices.ContainsFunc(env, func(v corev1.EnvVar) bool { return v.Name == "FAIRLEAD_TRUSTED_KEYS" && v.Value == a+","+b }) {
			t.Errorf("with %q the agent has the variables %v, want both keys", keys, env)
		}
	}
}

// full returns values that set everything.
func full(t *testing.T) map[string]any {
	t.Helper()
	all := set(set(set(valuesOf(t, "aks"), "jobs.resources", map[string]any{"cpuRequest": "500m", "cpuLimit": "2", "memoryRequest": "1Gi", "memoryLimit": "2Gi", "disk": "10Gi"}), "concurrency", 3), "controlPlane.jobURL", "https://jobs.example")
	all = set(all, "controlPlane.ca", map[string]any{"existingSecret": "fairlead-ca"})
	for path, value := range map[string]any{"jobs.startTimeout": "10m", "jobs.stopGrace": "5m", "jobs.keepFor": "2h", "jobs.providerMirror": "/mirror", "jobs.images": []any{"registry.example.com/acme/*"}, "jobs.podTemplate": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"note": "x"}}}, "jobs.nodeSelector": map[string]any{"disk": "ssd"}, "image.pullSecrets": []any{"regcred"}, "proxy.http": "http://p:1", "shareLog": false, "mode": "paused", "follow": "file",
		"policy.configMap": "acme-policy", "installKey": map[string]any{"existingSecret": "acme-seed", "secretKey": "seeds"}, "policy.ledgerNamespace": "acme-ledger",
		"secrets": map[string]any{"database/var.password": "kubernetes:acme/db#password", "TOKEN": "ssm:/acme/github", "A": "file:/run/a", "B": "arn:aws:ssm:eu-west-1:123456789012:parameter/acme/db"}} {
		all = set(all, path, value)
	}
	return all
}

// The agent accepts the rendered file. For each field that the chart does not set, the
// table has the reason.
func TestAgentAcceptsRenderedFile(t *testing.T) {
	left := map[string]string{
		"job.secrets": "pod_template gives them", "job.kubeconfig": "the agent is in the cluster", "job.data": "its default is right in a pod", "job.pass_env": "its default is right in a pod",
		"endpoint": "job.endpoint is given", "whole_roles": "a pod takes no role of an operation", "job.proxy": "the vendor's, or pod_template's", "job.proxy.http_proxy": "", "job.proxy.https_proxy": "", "job.proxy.no_proxy": "",
		"job": "", "type": "",
	}
	for name, values := range map[string]map[string]any{"default": valuesOf(t, "default"), "eks": valuesOf(t, "eks"), "aks": valuesOf(t, "aks"), "gke": valuesOf(t, "gke"), "key": valuesOf(t, "key"), "full": full(t)} {
		files, err := render(load(t), values)
		if err != nil {
			t.Fatal(err)
		}
		var c corev1.ConfigMap
		if err := yaml.UnmarshalStrict([]byte(files[folder+"/templates/agentfile.yaml"]), &c); err != nil {
			t.Fatal(err)
		}
		a, problems := runnerspec.ParseAgent("agent.yaml", []byte(c.Data["agent.yaml"]))
		if len(problems) > 0 || a.Runner.Kind() != runnerspec.Kubernetes || a.Final != (name == "full") {
			t.Errorf("%s: %+v, %v", name, a, problems)
		}
		seed := map[bool]string{false: "kubernetes:acme-fairlead-runner-install-key/seed", true: "kubernetes:acme-seed/seeds"}[name == "full"]
		reference, err := runnerspec.ParseReference(a.InstallKey)
		if err != nil || a.InstallKey != seed || a.InstallKeyByDefault != (name != "full") {
			t.Errorf("%s: the agent's file has the seed %q, by default %t (%v)", name, a.InstallKey, a.InstallKeyByDefault, err)
		}
		if !slices.ContainsFunc(deployment(t, files).Spec.Template.Spec.Containers[0].Env, func(v corev1.EnvVar) bool {
			return v.Name == reference.Variable() && v.ValueFrom != nil && v.ValueFrom.SecretKeyRef.Name+"/"+v.ValueFrom.SecretKeyRef.Key == reference.Name
		}) {
			t.Errorf("%s: the agent does not get the seed that its file names", name)
		}
		if name != "full" {
			continue
		}
		if a.Secrets["database/var.password"] != "kubernetes:acme/db#password" || len(a.Secrets) != 4 {
			t.Errorf("the agent's file has the secrets %v", a.Secrets)
		}
		if a.Policy != "kubernetes:acme-policy/policy.yaml" || a.Ledger != "kubernetes:acme-ledger" {
			t.Errorf("the agent's file has the policy %q and the ledger %q", a.Policy, a.Ledger)
		}
		b, err := json.Marshal(a.Runner)
		if err != nil {
			t.Fatal(err)
		}
		var given struct {
			Job map[string]any
			All map[string]any
		}
		if err := errors.Join(json.Unmarshal(b, &given), json.Unmarshal(b, &given.All)); err != nil {
			t.Fatal(err)
		}
		for _, f := range runnerspectest.RunnerFields(t, runnerspec.Kubernetes) {
			path := strings.TrimPrefix(f.Path, "runner_configuration.")
			_, hasReason := left[path]
			_, is := given.All[path]
			if field, ok := strings.CutPrefix(path, "job."); ok {
				_, is = given.Job[field]
				if parent, child, nested := strings.Cut(field, "."); nested {
					fields, _ := given.Job[parent].(map[string]any)
					_, is = fields[child]
				}
			}
			if f.Only != "control plane" && !strings.HasPrefix(path, "cluster") && !is && !hasReason {
				t.Errorf("the chart does not set %s, and the table has no reason", path)
			}
		}
	}
}

// planRules returns the rules of the chart's roles for plans.
func planRules(t *testing.T, files map[string]string) (all []rbacv1.PolicyRule) {
	t.Helper()
	for doc := range strings.SplitSeq(files[folder+"/templates/jobrbac.yaml"], "---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(role.Name, "-read-only") {
			all = append(all, role.Rules...)
		}
	}
	return all
}

// A plan gets of the permissions of jobs only those that read, and those of dry runs if the cluster has the policy.
func TestPlanGetsPartOfEachRule(t *testing.T) {
	reads, dry := "get,list", "get,list,create,update,patch,delete"
	for _, tt := range []struct {
		consequence              string
		rule                     []any
		resources, with, without string // verbs in a cluster with and without the policy; "": no rule
	}{
		{"a usual rule is readable, and its dry runs need the policy", rule("apps", "deployments", "get", "list", "create", "update", "patch", "delete"), "deployments", dry, reads},
		{"a rule that only writes is for dry runs", rule("apps", "deployments", "create"), "deployments", "create", ""},
		{"exec runs a program, so a plan has no subresource", rule("", "pods/exec", "get", "create"), "", "", ""},
		{"all subresources of a name contain the proxy", rule("", "*/proxy", "get"), "", "", ""},
		{"admission does not check what configures it", rule("admissionregistration.k8s.io", "*", "get", "list", "create", "delete"), "*", reads, reads},
		{"a named kind of all groups may be one that configures admission", rule("*", "validatingadmissionpolicies", "get", "list", "delete"), "validatingadmissionpolicies", reads, reads},
		{"all verbs are those that the policy covers, and not to be another account", rule("rbac.authorization.k8s.io", "roles", "*"), "roles", "get,list,watch,create,update,patch,delete,deletecollection,bind,escalate", "get,list,watch"},
		{"a plan is never another account", rule("", "serviceaccounts", "get", "list", "impersonate"), "serviceaccounts", reads, reads},
		{"a signature is given without a change of an object", rule("certificates.k8s.io", "signers", "sign", "approve"), "", "", ""},
	} {
		t.Run(tt.consequence, func(t *testing.T) {
			for _, path := range []string{"jobs.rules", "jobs.clusterRules"} {
				for verbs, kinds := range map[string][]string{"with " + tt.with: {policies}, "without " + tt.without: nil} {
					files, err := renderFor(load(t), set(valuesOf(t, "default"), path, tt.rule), kinds...)
					if err != nil {
						t.Fatal(err)
					}
					_, want, _ := strings.Cut(verbs, " ")
					got := planRules(t, files)
					if want == "" && len(got) == 0 {
						continue
					}
					if len(got) != 1 || strings.Join(got[0].Verbs, ",") != want || strings.Join(got[0].Resources, ",") != tt.resources {
						t.Errorf("%s: a plan gets %v, want %s of %s", path, got, verbs, tt.resources)
					}
				}
			}
		})
	}
}

// Where jobs may do everything, a plan may read kinds by name: "*" would contain nodes/proxy, by which a reader runs programs.
func TestPlanOfAnAdministratorIsBounded(t *testing.T) {
	values := set(valuesOf(t, "eks"), "jobs.customGroups", []any{"cert-manager.io"})
	files, err := render(load(t), values)
	if err != nil {
		t.Fatal(err)
	}
	all := planRules(t, files)
	if len(all) != 4 {
		t.Fatalf("a plan has the rules %v", all)
	}
	for _, r := range all {
		for _, resource := range r.Resources {
			if strings.Contains(resource, "/") || resource == "*" && !slices.Equal(r.APIGroups, []string{"admissionregistration.k8s.io"}) && !slices.Equal(r.APIGroups, []string{"cert-manager.io"}) {
				t.Errorf("a plan gets %s of %v", resource, r.APIGroups)
			}
		}
		if slices.Contains(r.APIGroups, "admissionregistration.k8s.io") && len(r.Verbs) != 3 || slices.Contains(r.Verbs, "*") || slices.Contains(r.Verbs, "impersonate") {
			t.Errorf("a plan gets the verbs %v of %v", r.Verbs, r.APIGroups)
		}
	}
}

// Without accounts per role the chart makes what it made before: one account with all permissions.
func TestOneAccountIsStillPossible(t *testing.T) {
	values := set(set(valuesOf(t, "eks"), "jobs.accountPerRole", false), "jobs.rules", rule("apps", "deployments", "*"))
	values = set(values, "workloadIdentity.aws", map[string]any{"jobRoleARN": "arn:aws:iam::123456789012:role/fairlead-jobs"})
	files, err := render(load(t), values)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, text := range files {
		all.WriteString(text)
	}
	for _, absent := range []string{"read-only", "-deploy\n", "deprovision", "service_accounts", "ValidatingAdmissionPolicy"} {
		if strings.Contains(all.String(), absent) {
			t.Errorf("the chart has %q", absent)
		}
	}
	if text := files[folder+"/templates/jobrbac.yaml"]; strings.Count(text, "name: acme-fairlead-runner-jobs\n") != 5 { // a role, two bindings with their account
		t.Errorf("the permissions of jobs are\n%s", text)
	}
}

// An upgrade with --reuse-values has the values of the earlier chart, without the newer ones. It keeps one account.
func TestUpgradeWithReusedValuesKeepsOneAccount(t *testing.T) {
	c := load(t)
	jobs := c.Values["jobs"].(map[string]any)
	for _, newer := range []string{"accountPerRole", "planDryRun", "namespaces", "namespaceRules", "clusterRules", "customGroups", "statesInNamespace"} {
		if _, is := jobs[newer]; !is {
			t.Fatalf("the chart has no value jobs.%s", newer)
		}
		delete(jobs, newer)
	}
	delete(c.Values["workloadIdentity"].(map[string]any)["aws"].(map[string]any), "jobRoleARNs")
	earlier := set(valuesOf(t, "eks"), "workloadIdentity.aws", map[string]any{"jobRoleARN": "arn:aws:iam::123456789012:role/fairlead-jobs"})
	files, err := render(c, set(earlier, "jobs.rules", rule("", "secrets", "get")))
	if err != nil {
		t.Fatal(err)
	}
	if text := files[folder+"/templates/serviceaccounts.yaml"]; strings.Count(text, "kind: ServiceAccount\n") != 2 {
		t.Errorf("the accounts are\n%s", text)
	}
	if text := files[folder+"/templates/jobrbac.yaml"]; strings.Count(text, "kind: RoleBinding\n") != 1 || strings.Count(text, "kind: ClusterRoleBinding\n") != 1 {
		t.Errorf("the permissions of jobs are\n%s", text)
	}
}

// docs/reference/executors.md shows the rules of the role for operators who create
// their own.
func TestPageShowsTheRole(t *testing.T) {
	var granted rbacv1.Role
	first, _, _ := strings.Cut(rendered(t, "default")[folder+"/templates/rbac.yaml"], "\n---")
	if err := yaml.UnmarshalStrict([]byte(first), &granted); err != nil {
		t.Fatal(err)
	}
	if len(granted.Rules) == 0 {
		t.Fatal("the role has no rules")
	}
	list := func(names []string) string {
		shown := slices.Clone(names)
		for i, name := range shown {
			if name == "" { // the core group
				shown[i] = `""`
			}
		}
		return "[" + strings.Join(shown, ", ") + "]"
	}
	var rules strings.Builder
	for _, r := range granted.Rules {
		documented := rbacv1.PolicyRule{APIGroups: r.APIGroups, Resources: r.Resources, Verbs: r.Verbs}
		if r.String() != documented.String() {
			t.Errorf("the page cannot show all of %s", r.String())
		}
		fmt.Fprintf(&rules, "- {apiGroups: %s, resources: %s, verbs: %s}\n", list(r.APIGroups), list(r.Resources), list(r.Verbs))
	}
	page.Hold(t, "docs/reference/executors.md", "role", "```yaml\nrules:\n"+rules.String()+"```")
}
