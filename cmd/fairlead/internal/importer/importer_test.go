package importer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/importer"
	"github.com/fairlead/fairlead/cmd/fairlead/internal/view"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/tools/page"
)

func source(file string) func(string, []byte, []string) importer.Result {
	product, _, _ := strings.Cut(filepath.Base(file), "-")
	return importer.Sources()[product]
}

// The import of each example equals its golden file: the configuration and the note of
// each line. `runner create` accepts the configuration. UPDATE_GOLDEN=1 writes the
// golden files.
func TestExamplesAreImported(t *testing.T) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".golden" {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := source(file)(filepath.Base(file), src, nil)
			if r.Spec == nil {
				t.Fatal(r.Problems)
			}
			config, err := json.Marshal(r.Spec)
			if err != nil {
				t.Fatal(err)
			}
			got := view.YAML(config)
			if again := runnerspec.Parse("made", got); again.Spec == nil {
				t.Errorf("the configuration is not valid: %v", again.Problems)
			}
			var result strings.Builder
			result.Write(got)
			result.WriteString("---\n")
			for _, n := range r.Notes {
				fmt.Fprintf(&result, "%d: %s\n", n.Line, n)
			}
			golden := file + ".golden"
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(result.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || result.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s(%v); UPDATE_GOLDEN=1 writes it", result.String(), want, err)
			}

			// Each variable of the file has a note.
			noted := map[int]bool{}
			for _, n := range r.Notes {
				noted[n.Line] = true
			}
			for i, line := range strings.Split(string(src), "\n") {
				if filepath.Ext(file) == ".env" && strings.Contains(line, "=") && !noted[i+1] {
					t.Errorf("line %d has no note: %s", i+1, line)
				}
			}
		})
	}
}

func TestUnknownSettingsAreErrorsWithTheirPlace(t *testing.T) {
	const gke = "runner_configuration:\n  type: kubernetes-gke\nstate_storage_configuration: {type: kubernetes, namespace: x}\n"
	tests := []struct{ consequence, product, src, want string }{
		{"a field that is misspelt", "humanitec", strings.Replace(gke, "  type", "  clutser: {}\n  type", 1), `f:2:3: runner_configuration has no field "clutser" [unknown-field]. Did you mean "cluster"?`},
		{"a field of another type of runner", "humanitec", strings.Replace(gke, "  type", "  key: x\n  type", 1), `f:2:3: runner_configuration has no field "key"`},
		{"a type that is misspelt", "humanitec", strings.Replace(gke, "kubernetes-gke", "kubernetes-gek", 1), `f:2:9: runner_configuration.type is not a type of Humanitec [unknown-type]. Did you mean "kubernetes-gke"?`},
		{"no type", "humanitec", strings.Replace(gke, "type: kubernetes-gke", "job: {}", 1), `f:2:3: runner_configuration lacks the field "type"`},
		{"no storage", "humanitec", "runner_configuration: {type: kubernetes-gke}", `lacks the field "state_storage_configuration"`},
		{"a list instead of a map", "humanitec", "runner_configuration: []", `f:1:23: runner_configuration lacks the field "type"`},
		{"nothing", "humanitec", "", "the file must be a map, not nothing"},
		{"no YAML", "humanitec", "a: [", "f:1:"},
		{"a field twice", "humanitec", "id: a\nid: b\n" + gke, `f:2:1: the file has the field "id" twice`},
		{"a secret that was read back", "humanitec", strings.Replace(gke, "type: kubernetes-gke", "type: kubernetes\n  cluster:\n    cluster_data: {server: 'https://k'}\n    auth:\n      service_account_token: SECRET", 1),
			"f:6:30: runner_configuration.cluster.auth.service_account_token is Humanitec's placeholder and not the secret itself"},
		{"a container beside that of the job", "humanitec", strings.Replace(gke, "kubernetes-gke", "kubernetes-gke\n  job:\n    pod_template:\n      spec:\n        containers:\n        - name: cannyon-runner", 1),
			`f:7:17: runner_configuration.job.pod_template.spec.containers[0] is called "cannyon-runner", which is not the container of Humanitec's runner [unknown-container]. Did you mean "canyon-runner"?`},
		{"a bucket without a region", "humanitec", strings.Replace(gke, "type: kubernetes, namespace: x", "type: s3, bucket: states", 1), "f:3:37: the file has no region for the bucket"},
		{"a value that Fairlead refuses", "humanitec", strings.Replace(gke, "namespace: x", "namespace: X_Y", 1), `state_storage_configuration.namespace must be a Kubernetes name`},

		{"a variable that is misspelt", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=local\nTHARSIS_RUNER_PATH=a/b", `f:2:1: Tharsis has no variable THARSIS_RUNER_PATH [unknown-variable]. Did you mean "THARSIS_RUNNER_PATH"?`},
		{"a dispatcher that is misspelt", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=kubernets", `f:1:1: THARSIS_JOB_DISPATCHER_TYPE is not a type of dispatcher [unknown-type]. Did you mean "kubernetes"?`},
		{"no dispatcher", "tharsis", "THARSIS_RUNNER_PATH=a/b", "f:1:1: the file does not set THARSIS_JOB_DISPATCHER_TYPE"},
		{"an authentication type that is misspelt", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=kubernetes\nTHARSIS_JOB_DISPATCHER_DATA_AUTH_TYPE=eks-iam", `f:2:1: THARSIS_JOB_DISPATCHER_DATA_AUTH_TYPE is not a type of Tharsis [unknown-type]. Did you mean "eks_iam"?`},
		{"a line without a variable", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=local\n\nwhat is this", "f:3:1: the line is not of the form NAME=value"},
		{"a variable twice", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=local\nTHARSIS_JOB_DISPATCHER_TYPE=docker", "f:2:1: THARSIS_JOB_DISPATCHER_TYPE is set twice, first in line 1"},
		{"an unknown argument of the helper", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=local\nTHARSIS_CREDENTIAL_HELPER_CMD_PATH=/x/iamoidccredhelper\nTHARSIS_CREDENTIAL_HELPER_CMD_ARGS=-regoin=eu-west-1",
			`f:3:1: THARSIS_CREDENTIAL_HELPER_CMD_ARGS: the helper has no argument -regoin [unknown-argument]. Did you mean "region"?`},
		{"a user of a registry without a password", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=docker\nTHARSIS_JOB_DISPATCHER_DATA_REGISTRY_USERNAME=u", `f:2:1: runner_configuration.job.registry lacks the field "password"`},
		{"a value that Fairlead refuses", "tharsis", "THARSIS_JOB_DISPATCHER_TYPE=ecs\nTHARSIS_JOB_DISPATCHER_DATA_LAUNCH_TYPE=lambda", "f:2:1: runner_configuration.job.launch_type must be fargate"},
		{"nothing", "tharsis", "# nothing\n", "f:1:1: the file has no variables"},
	}
	for _, tt := range tests {
		t.Run(tt.product+": "+tt.consequence, func(t *testing.T) {
			r := importer.Sources()[tt.product]("f", []byte(tt.src), nil)
			if r.Spec != nil || !strings.Contains(r.Problems.Error(), tt.want) {
				t.Errorf("got %v, want %s", r.Problems, tt.want)
			}
		})
	}
}

// Settings of the command line complete the file.
func TestSettingsCompleteTheFile(t *testing.T) {
	src := "runner_configuration: {type: kubernetes-agent}\nstate_storage_configuration: {type: s3, bucket: states}\n"
	r := importer.Humanitec("f", []byte(src), []string{"state_storage_configuration.region=eu-west-1"})
	if r.Spec == nil || r.Spec.Storage.(*runnerspec.S3Storage).Region != "eu-west-1" {
		t.Errorf("%+v, %v", r.Spec, r.Problems)
	}
	env := "THARSIS_JOB_DISPATCHER_TYPE=kubernetes\nTHARSIS_JOB_DISPATCHER_DATA_AUTH_TYPE=eks_iam\nTHARSIS_JOB_DISPATCHER_DATA_REGION=eu-west-1\nTHARSIS_JOB_DISPATCHER_DATA_EKS_CLUSTER=acme\nTHARSIS_JOB_DISPATCHER_DATA_NAMESPACE=jobs\n"
	r = importer.Tharsis("f", []byte(env), []string{"runner_configuration.cluster.auth.role_arn=arn:aws:iam::123456789012:role/in", "runner_configuration.job.service_account=jobs"})
	if r.Spec == nil {
		t.Fatal(r.Problems)
	}
	if c := r.Spec.Runner.(*runnerspec.EKSRunner).Cluster; c == nil || c.Name != "acme" || c.Region != "eu-west-1" {
		t.Errorf("the cluster is %+v", c)
	}
}

// docs/reference/import.md has a row for each variable that is mapped or changed. Dropped
// variables have another table, which the tests of pkg/runnerspec check.
func TestEveryMappingIsInTheDocumentation(t *testing.T) {
	documented := map[string]bool{}
	for _, row := range page.Table(t, "docs/reference/import.md", "there", "here", "kind", "value") {
		for _, name := range page.Code(row[0]) {
			documented[name] = true
		}
	}
	files, _ := filepath.Glob("testdata/*.env.golden")
	for _, file := range files {
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\d+: (?:mapped|changed) (THARSIS_\w+)`).FindAllStringSubmatch(string(golden), -1) {
			if !documented[m[1]] {
				t.Errorf("%s: docs/reference/import.md has no row for %s", file, m[1])
			}
		}
	}
}

// The importer maps each setting of docs/reference/import.md as its row states, for a
// file of the row's kind.
func TestTharsisImportMatchesItsPage(t *testing.T) {
	const sets, role = "THARSIS_JOB_DISPATCHER_", "runner_configuration.cluster.auth.role_arn=arn:aws:iam::123456789012:role/in"
	dispatchers := map[string]string{
		"local": "TYPE=local", "docker": "TYPE=docker", "kubernetes": "TYPE=kubernetes", "aws-eks": "TYPE=kubernetes\n" + sets + "DATA_AUTH_TYPE=eks_iam",
		"aws-ecs": "TYPE=ecs",
	}
	count := 0
	for _, row := range page.Table(t, "docs/reference/import.md", "there", "here", "kind", "value") {
		there, here := page.Code(row[0]), page.Code(row[1])[0]
		if !strings.HasPrefix(there[0], "THARSIS_") {
			continue
		}
		count++
		t.Run(row[0], func(t *testing.T) {
			value := strings.NewReplacer(`", "`, ",", ", ", ",", `"`, "", "[", "", "]", "", "{", "", "}", "", ": ", "=").Replace(row[3])
			switch {
			case here == "id":
				value = "a/" + value
			case here == "group":
				value += "/x"
			case len(there) > 1:
				value = there[1]
			case strings.Contains(value, "annotations"):
				value = "team=shop"
			}
			src := sets + dispatchers[row[2]] + "\n"
			if !strings.Contains(src, there[0]+"=") {
				src += there[0] + "=" + value + "\n"
			}
			var settings []string
			if strings.Contains(row[0], "with a role") {
				settings = []string{role}
			}
			r := importer.Tharsis("f", []byte(src), settings)
			for _, n := range r.Notes {
				if n.From == there[0] && (n.To == here || strings.HasPrefix(n.To, here+".")) && n.Fate != importer.Dropped {
					return
				}
			}
			t.Errorf("the import of\n%sresulted in %v, %v; want %s", src, r.Notes, r.Problems, here)
		})
	}
	if count < 30 {
		t.Errorf("the page has %d rows", count)
	}
}

func TestDroppedSettingsNameTheirReplacement(t *testing.T) {
	const eks = "THARSIS_JOB_DISPATCHER_TYPE=kubernetes\nTHARSIS_JOB_DISPATCHER_DATA_AUTH_TYPE=eks_iam\n"
	for line, want := range map[string]string{
		"THARSIS_API_URL=https://t":                                 "--set runner_configuration.endpoint=URL",
		"THARSIS_SERVICE_DISCOVERY_HOST=t":                          "--set runner_configuration.endpoint=URL",
		"THARSIS_JOB_DISPATCHER_DATA_API_URL=https://t":             "--set runner_configuration.endpoint=URL",
		"THARSIS_JOB_DISPATCHER_DATA_DISCOVERY_PROTOCOL_HOST=t":     "--set runner_configuration.endpoint=URL",
		"THARSIS_JOB_DISPATCHER_DATA_EKS_CLUSTER=c":                 "--set runner_configuration.cluster.auth.role_arn=ARN",
		"THARSIS_JOB_DISPATCHER_DATA_REGION=eu-west-1":              "--set runner_configuration.cluster.auth.role_arn=ARN",
		"THARSIS_TLS_SKIP_VERIFY=true":                              "SSL_CERT_FILE names further authorities",
		"TLS_SKIP_VERIFY=true":                                      "SSL_CERT_FILE names further authorities",
		"THARSIS_JOB_DISPATCHER_DATA_TLS_SKIP_VERIFY=true":          "SSL_CERT_FILE names further authorities",
		"SSL_CERT_FILE=/etc/ca.pem":                                 "set it in the environment of the agent",
		"THARSIS_CREDENTIAL_HELPER_CMD_PATH=/opt/iamoidccredhelper": "FAIRLEAD_IDENTITY=aws-iam",
		"THARSIS_CREDENTIAL_HELPER_CMD_PATH=/opt/token-from-vault":  "enrols with a single-use token",
	} {
		t.Run(line, func(t *testing.T) {
			r := importer.Tharsis("f", []byte(eks+line+"\n"), nil)
			last := r.Notes[len(r.Notes)-1]
			if r.Spec == nil && !strings.Contains(r.Problems.Error(), "namespace") || last.Line != 3 || last.Fate != importer.Dropped || !strings.Contains(last.Why, want) {
				t.Errorf("got %v, %v", last, r.Problems)
			}
		})
	}
}

func TestHumanitecsTerraformFormIsImported(t *testing.T) {
	const storage = `"state_storage_configuration": {"type": "s3", "s3_configuration": {"bucket": "states", "path_prefix": null}, "gcs_configuration": null}`
	region := []string{"state_storage_configuration.region=eu-west-1"}
	for theirs, c := range map[string]struct {
		runner string
		want   runnerspec.Kind
	}{
		"kubernetes-agent": {`{"key": "k"}`, runnerspec.Kubernetes},
		"kubernetes":       {`{"cluster": {"cluster_data": {"server": "https://k", "certificate_authority_data": "eA=="}, "auth": {"service_account_token": "t"}}}`, runnerspec.Kubernetes},
		"kubernetes-eks":   {`{"cluster": {"name": "c", "region": "eu-west-1", "auth": {"role_arn": "arn:aws:iam::123456789012:role/r"}}}`, runnerspec.AWSEKS},
		"kubernetes-gke":   {`{"cluster": {"name": "c", "project_id": "p", "location": "l", "auth": {"gcp_audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q", "gcp_service_account": "r@p.iam.gserviceaccount.com"}}}`, runnerspec.GCPGKE},
	} {
		t.Run(theirs, func(t *testing.T) {
			runner := strings.TrimSuffix(c.runner, "}") + `, "job": {"namespace": "n", "service_account": "s", "pod_template": "{\"metadata\":{\"annotations\":{\"a\":\"b\"}}}"}}`
			r := importer.Humanitec("f", []byte(`{"id": "x", "runner_configuration": `+runner+`, `+storage+`}`), region)
			if r.Spec == nil {
				t.Fatal(r.Problems)
			}
			data, _ := json.Marshal(r.Spec)
			if r.Spec.Runner.Kind() != c.want || !strings.Contains(string(data), `"annotations":{"a":"b"}`) || r.Spec.Storage.(*runnerspec.S3Storage).Bucket != "states" {
				t.Errorf("got %s", data)
			}
		})
	}
	for consequence, c := range map[string]struct{ job, storage, want string }{
		"a template that is not JSON":  {`{"pod_template": "{"}`, storage, "f:1:63: runner_configuration.job.pod_template is a text but not JSON"},
		"a template that is not a map": {`{"pod_template": "[]"}`, storage, "runner_configuration.job.pod_template must be a map, not a list"},
		"a block of another type":      {`{}`, strings.Replace(storage, `"gcs_configuration": null`, `"gcs_configuration": {"bucket": "states"}`, 1), "state_storage_configuration.gcs_configuration does not belong to a state storage of type s3"},
		"an unknown field of a block":  {`{}`, strings.Replace(storage, `"path_prefix"`, `"prefix"`, 1), `state_storage_configuration.s3_configuration has no field "prefix"`},
	} {
		t.Run(consequence, func(t *testing.T) {
			r := importer.Humanitec("f", []byte(`{"runner_configuration": {"key": "k", "job": `+c.job+`}, `+c.storage+`}`), region)
			if r.Spec != nil || !strings.Contains(r.Problems.Error(), c.want) {
				t.Errorf("got %v, want %s", r.Problems, c.want)
			}
		})
	}
}

func FuzzImport(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.*")
	for _, file := range files {
		if src, err := os.ReadFile(file); err == nil && filepath.Ext(file) != ".golden" {
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		for name, read := range importer.Sources() {
			if r := read("f", src, nil); (r.Spec == nil) != (len(r.Problems) > 0) {
				t.Errorf("%s: a configuration %t and %d problems", name, r.Spec != nil, len(r.Problems))
			}
		}
	})
}
