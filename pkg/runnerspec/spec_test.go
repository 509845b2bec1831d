package runnerspec_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/tools/page"
)

const digest = "registry.example.com/runner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// minimal returns a runner of the kind with only the required fields.
func minimal(k runnerspec.Kind) string {
	job := ""
	storage := "type: http"
	if k == runnerspec.AWSECS {
		job = `
  job:
    region: eu-west-1
    cluster: runners
    subnets: [subnet-0123456789abcdef0]
    execution_role_arn: arn:aws:iam::123456789012:role/execution`
	}
	return fmt.Sprintf("id: mine\nrunner_configuration:\n  type: %s%s\nstate_storage_configuration:\n  %s\n", k, job, storage)
}

// bare returns a runner of the kind whose agent's file has all settings, as in a customer's stack.
func bare(k runnerspec.Kind) string {
	return fmt.Sprintf("id: mine\nrunner_configuration:\n  type: %s\nstate_storage_configuration:\n  type: http\n", k)
}

// direct returns a runner of the kind that an agent next to the control plane serves,
// if the kind supports that; otherwise a minimal runner.
func direct(k runnerspec.Kind) string {
	const role = "auth: {role_arn: 'arn:aws:iam::123456789012:role/manager'}"
	cluster := map[runnerspec.Kind]string{
		runnerspec.AWSEKS:     "cluster: {name: c, region: eu-west-1, " + role + "}",
		runnerspec.AzureAKS:   "cluster: {name: c, resource_group: g, subscription_id: 01234567-89ab-cdef-0123-456789abcdef, auth: {tenant_id: 01234567-89ab-cdef-0123-456789abcdef, client_id: 01234567-89ab-cdef-0123-456789abcdef}}",
		runnerspec.GCPGKE:     "cluster: {name: c, project_id: p, location: l, auth: {gcp_audience: //iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q, gcp_service_account: r@p.iam.gserviceaccount.com}}",
		runnerspec.Kubernetes: "cluster: {server: 'https://k8s.example.com', auth: {service_account_token: hush}}",
	}[k]
	switch {
	case k == runnerspec.AWSECS:
		return strings.Replace(minimal(k), "\n  job:", "\n  "+role+"\n  job:", 1)
	case cluster == "":
		return minimal(k)
	}
	return fmt.Sprintf("id: mine\nrunner_configuration:\n  type: %s\n  %s\n  job: {namespace: runners, service_account: runner}\nstate_storage_configuration:\n  type: http\n", k, cluster)
}

func parse(t *testing.T, src string) *runnerspec.Spec {
	t.Helper()
	r := runnerspec.Parse("runner.yaml", []byte(src))
	if r.Spec == nil {
		t.Fatalf("%v\nin\n%s", r.Problems, src)
	}
	return r.Spec
}

// document returns the reference page of the runner's configuration.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/runner-file.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRunnerSurvivesUpdateAndJSON(t *testing.T) {
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(document(t))[1]
	s := parse(t, example)
	gke, ok := s.Runner.(*runnerspec.GKERunner)
	if !ok || s.ID != "my-gke-runner" || gke.Cluster.Location != "europe-west3" || gke.Job.Namespace != "fairlead-runner" || s.Storage.Kind() != runnerspec.KubernetesState {
		t.Fatalf("spec %+v", s)
	}

	r := runnerspec.Update(s, "patch.yaml", []byte("runner_configuration:\n  job: {memory_limit: 2Gi, pull_secrets: null, environment: {TF_LOG: debug}}\n"))
	if r.Spec == nil {
		t.Fatal(r.Problems)
	}
	after := r.Spec.Runner.(*runnerspec.GKERunner)
	if after.Job.MemoryLimit != 2<<30 || after.Job.PullSecrets != nil || after.Job.Environment["TF_LOG"] != "debug" || after.Job.Namespace != "fairlead-runner" || after.Cluster.Name != "my-cluster" {
		t.Errorf("runner after the update: %+v", after)
	}
	if gke.Job.MemoryLimit != 0 || gke.Job.PullSecrets == nil {
		t.Error("Update changed its argument")
	}

	data, err := json.Marshal(r.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var back runnerspec.Spec
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(&back); err != nil || string(again) != string(data) {
		t.Errorf("%s\nis read back as\n%s, %v", data, again, err)
	}
}

func TestProblemInReferenceIsCurrent(t *testing.T) {
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(document(t))[1]
	r := runnerspec.Parse("runner.yaml", []byte(strings.Replace(example, "location:", "locaton:", 1)))
	if len(r.Problems) == 0 {
		t.Fatal("Parse accepts an unknown field")
	}
	page.Hold(t, "docs/reference/runner-file.md", "problem", "```\n"+r.Problems[0].String()+"\n```")
}

// mappings returns the rows of the tables of other products' fields.
func mappings(t *testing.T) [][]string {
	t.Helper()
	return page.Table(t, "docs/reference/import.md", "there", "here", "kind", "value")
}

// Each row of the tables of other products' fields has the Fairlead field, a runner
// kind and a value. The field must accept the value and keep it.
func TestFieldsOfOtherProductsAreAccepted(t *testing.T) {
	rows := mappings(t)
	if len(rows) < 45 {
		t.Fatalf("the page has %d rows", len(rows))
	}
	for _, row := range rows {
		there, path, kind, value := row[0], strings.Trim(row[1], "`"), runnerspec.Kind(row[2]), row[3]
		t.Run(there, func(t *testing.T) {
			src := direct(kind)
			patch, depth := "", 0
			if path == "runner_configuration.job.task_definition" {
				patch, depth = "runner_configuration:\n  job:\n    execution_role_arn: null\n", 2
			}
			if strings.HasPrefix(path, "state_storage_configuration") {
				patch, depth = "state_storage_configuration:\n  type: kubernetes\n  namespace: x\n", 1
			}
			if strings.Contains(path, ".registry.") {
				patch = "runner_configuration:\n  job:\n    registry:\n      username: user\n      password: something\n"
				depth = 3
			}
			names := strings.Split(path, ".")
			if patch != "" { // remove the line with the field's own name
				patch = regexp.MustCompile(`(?m)^ +`+names[depth]+`: .*\n`).ReplaceAllString(patch, "")
			}
			for i, name := range names[depth:] {
				patch += strings.Repeat("  ", depth+i) + name + ":"
				if depth+i < len(names)-1 {
					patch += "\n"
				}
			}
			patch += " " + value + "\n"
			if path == "id" {
				src = strings.Replace(src, "id: mine\n", patch, 1)
				patch = "description: x\n"
			}
			r := runnerspec.Update(parse(t, src), "patch.yaml", []byte(patch))
			if r.Spec == nil {
				t.Fatalf("%v\nof\n%s", r.Problems, patch)
			}
			data, err := json.Marshal(r.Spec)
			if err != nil {
				t.Fatal(err)
			}
			var got any
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				got = got.(map[string]any)[name]
			}
			want := strings.Trim(value, "[]")
			if value == "42 MB" {
				want = "42000000"
			}
			if strings.HasPrefix(value, "{") {
				var fields map[string]any
				if err := yaml.Unmarshal([]byte(value), &fields); err != nil {
					t.Fatal(err)
				}
				want = fmt.Sprint(fields)
			}
			want = strings.NewReplacer(`", "`, " ", `"`, "", ", ", " ").Replace(want)
			if fmt.Sprint(got) != want && fmt.Sprint(got) != "["+want+"]" {
				t.Errorf("%s is read back as %v, want %s", path, got, want)
			}
		})
	}
}

// The tables list exactly the variables of the other product: the variables that
// become a field and the variables that are dropped.
func TestImportTablesAreComplete(t *testing.T) {
	want := []string{
		"RUNNER_PATH", "SERVICE_ACCOUNT_PATH", "API_URL", "SERVICE_DISCOVERY_HOST", "CREDENTIAL_HELPER_CMD_PATH", "CREDENTIAL_HELPER_CMD_ARGS",
		"JOB_DISPATCHER_TYPE", "JOB_DISPATCHER_DATA_API_URL", "JOB_DISPATCHER_DATA_TASK_DEFINITION", "JOB_DISPATCHER_DATA_REGION",
		"JOB_DISPATCHER_DATA_CLUSTER", "JOB_DISPATCHER_DATA_SUBNETS", "JOB_DISPATCHER_DATA_LAUNCH_TYPE", "JOB_DISPATCHER_DATA_AUTH_TYPE",
		"JOB_DISPATCHER_DATA_IMAGE", "JOB_DISPATCHER_DATA_MEMORY_REQUEST", "JOB_DISPATCHER_DATA_MEMORY_LIMIT", "JOB_DISPATCHER_DATA_NAMESPACE",
		"JOB_DISPATCHER_DATA_EKS_CLUSTER", "JOB_DISPATCHER_DATA_HOST", "JOB_DISPATCHER_DATA_LOCAL_IMAGE", "JOB_DISPATCHER_DATA_EXTRA_HOSTS",
		"JOB_DISPATCHER_DATA_BIND_PATH", "JOB_DISPATCHER_DATA_REGISTRY_USERNAME", "JOB_DISPATCHER_DATA_REGISTRY_PASSWORD",
		"RUNNER_ID", "SERVICE_ACCOUNT_ID", "JOB_DISPATCHER_DATA_CPU_REQUEST", "JOB_DISPATCHER_DATA_CPU_LIMIT",
		"JOB_DISPATCHER_DATA_NODE_SELECTOR", "JOB_DISPATCHER_DATA_POD_LABELS", "JOB_DISPATCHER_DATA_POD_ANNOTATIONS",
		"JOB_DISPATCHER_DATA_DISCOVERY_PROTOCOL_HOST", "TLS_SKIP_VERIFY", "JOB_DISPATCHER_DATA_TLS_SKIP_VERIFY",
	}
	slices.Sort(want)
	var got []string
	for _, row := range append(mappings(t), page.Table(t, "docs/reference/import.md", "there", "what takes its place")...) {
		for _, code := range page.Code(row[0]) {
			if name, ok := strings.CutPrefix(code, "THARSIS_"); ok {
				got = append(got, name)
			}
		}
	}
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("docs/reference/import.md has rows for %q, want %q", got, want)
	}
}

func TestStorageMatrixIsEnforced(t *testing.T) {
	storages := map[runnerspec.StorageKind]string{
		runnerspec.S3State: "bucket: states\n  region: eu-west-1", runnerspec.GCSState: "bucket: states",
		runnerspec.AzureState: "storage_account_name: states\n  container_name: states", runnerspec.KubernetesState: "namespace: states",
		runnerspec.HTTPState: "", runnerspec.LocalState: "",
	}
	want := map[runnerspec.Kind]string{ // in the order of StorageKinds
		runnerspec.AWSECS: "s3 http", runnerspec.AWSEKS: "s3 gcs azurerm kubernetes http", runnerspec.AzureAKS: "s3 gcs azurerm kubernetes http",
		runnerspec.GCPGKE: "s3 gcs azurerm kubernetes http", runnerspec.Kubernetes: "s3 gcs azurerm kubernetes http",
		runnerspec.Docker: "s3 gcs azurerm http local", runnerspec.Local: "s3 gcs azurerm http local",
	}
	for _, k := range runnerspec.Kinds() {
		for _, s := range runnerspec.StorageKinds() {
			can := slices.Contains(strings.Fields(want[k]), string(s))
			if ok, why := runnerspec.Compatible(k, s); ok != can || ok != (why == "") {
				t.Errorf("%s with %s: %t, %q", k, s, ok, why)
			}
			storage := fmt.Sprintf("type: %s\n  %s\n", s, storages[s])
			created := runnerspec.Parse("r", []byte(strings.Replace(minimal(k), "type: http\n", storage, 1)))
			updated := runnerspec.Update(parse(t, minimal(k)), "p", []byte("state_storage_configuration:\n  "+storage))
			for what, r := range map[string]runnerspec.Result{"create": created, "update": updated} {
				refused := slices.ContainsFunc(r.Problems, func(p runnerspec.Problem) bool { return p.Code == "incompatible-storage" })
				if (r.Spec != nil) != can || refused == can {
					t.Errorf("%s of %s with %s: %v", what, k, s, r.Problems)
				}
			}
		}
	}
	if !strings.Contains(runnerspec.Matrix(), "aws-ecs     yes  no (1)  no (1)   no (2)      yes   no (3)\n") {
		t.Errorf("Matrix:\n%s", runnerspec.Matrix())
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	src := strings.Replace(direct(runnerspec.Kubernetes), "type: http", "type: http", 1)
	s := parse(t, src)
	if got := s.Secrets(); len(got) != 1 || got[0] != "hush" {
		t.Errorf("Secrets: %q", got)
	}
	k := s.Runner.(*runnerspec.KubernetesRunner)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(format, k.Cluster.Auth); strings.Contains(text, "hush") || strings.Contains(text, fmt.Sprintf("%x", "hush")) {
			t.Errorf("format %s shows %s", format, text)
		}
	}
	data, err := json.Marshal(s.Masked())
	if err != nil || strings.Contains(string(data), "hush") || !strings.Contains(string(data), `"service_account_token":"(masked)"`) {
		t.Errorf("masked JSON %s, %v", data, err)
	}

	// The masked configuration cannot create a runner. As an update it keeps the secret.
	if r := runnerspec.Parse("r", data); r.Spec != nil || !strings.Contains(r.Problems.Error(), "read back") {
		t.Errorf("Parse accepts a mask as a secret: %v", r.Problems)
	}
	r := runnerspec.Update(s, "p", []byte(strings.Replace(string(data), `"mine"`, `"mine","description":"edited"`, 1)))
	if r.Spec == nil {
		t.Fatal(r.Problems)
	}
	if got := r.Spec.Secrets(); r.Spec.Description != "edited" || len(got) != 1 || got[0] != "hush" {
		t.Errorf("secrets after a round trip: %q", got)
	}

	// No message holds a secret.
	for _, src := range []string{
		strings.Replace(direct(runnerspec.Kubernetes), "service_account_token: hush", "client_certificate_data: aGk=, client_key_data: 'hush!'", 1),
		minimal(runnerspec.Docker) + "x:\n",
		strings.Replace(minimal(runnerspec.Docker), "  type: docker\n", "  type: docker\n  job:\n    secrets: {A: hush}\n    proxy: {http_proxy: 'http://me:hush@proxy'}\n", 1),
	} {
		r := runnerspec.Parse("r", []byte(src))
		if r.Spec != nil || strings.Contains(r.Problems.Error(), "hush") {
			t.Errorf("problems %v", r.Problems)
		}
	}
}

// The credentials of a cloud kind are only the name of a role or an account, which is
// useless to a reader. Only the kind kubernetes holds a secret. The agent next to the
// control plane gets that secret again for steps of an older configuration.
func TestCloudKindsHoldNoSecrets(t *testing.T) {
	var holds func(reflect.Type) bool
	holds = func(of reflect.Type) bool {
		switch {
		case of == reflect.TypeFor[runnerspec.Secret]():
			return true
		case of.Kind() == reflect.Pointer:
			return holds(of.Elem())
		case of.Kind() != reflect.Struct:
			return false
		}
		return slices.ContainsFunc(reflect.VisibleFields(of), func(f reflect.StructField) bool { return holds(f.Type) })
	}
	for of, want := range map[reflect.Type]bool{
		reflect.TypeFor[runnerspec.ECSRunner](): false, reflect.TypeFor[runnerspec.EKSRunner](): false, reflect.TypeFor[runnerspec.AKSRunner](): false,
		reflect.TypeFor[runnerspec.GKERunner](): false, reflect.TypeFor[runnerspec.KubernetesRunner](): true,
	} {
		if holds(of) != want {
			t.Errorf("%s holds a secret: %t", of, !want)
		}
	}
	for _, k := range []runnerspec.Kind{runnerspec.AWSEKS, runnerspec.AzureAKS, runnerspec.GCPGKE} {
		src := strings.Replace(direct(k), "cluster: {", "cluster: {proxy_url: 'http://me:hush@proxy', ", 1)
		if r := runnerspec.Parse("r", []byte(src)); r.Spec != nil || !strings.Contains(r.Problems.Error(), "secret-in-plain") || strings.Contains(r.Problems.Error(), "hush") {
			t.Errorf("a password in the proxy of %s: %v\n%s", k, r.Problems, src)
		}
	}
}

func TestProblemsBecomeAnInvalidRunnerError(t *testing.T) {
	r := runnerspec.Parse("r", []byte("id: 1\n"))
	err := r.Problems.Err()
	if fairlead.KindOf(err) != fairlead.KindInvalid || fairlead.CodeOf(err) != "invalid-runner" || !strings.Contains(err.Error(), "r:1:5: id must be a string, not a number [wrong-type]. Put quotes around it.") {
		t.Errorf("error %v", err)
	}
	if runnerspec.Problems(nil).Err() != nil {
		t.Error("Err of no problems is not nil")
	}
}
