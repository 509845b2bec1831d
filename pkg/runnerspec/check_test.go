package runnerspec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/runnerspec"
)

// with returns the minimal runner of the kind with more in its runner_configuration.
// If more begins with "job: ", the rest goes into the job.
func with(k runnerspec.Kind, more string) string {
	src := minimal(k)
	if job, ok := strings.CutPrefix(more, "job: "); ok {
		if strings.Contains(src, "\n  job:\n") {
			return strings.Replace(src, "\n  job:\n", "\n  job:\n    "+job+"\n", 1)
		}
		more = "job:\n    " + job
	}
	return strings.Replace(src, "type: "+string(k)+"\n", "type: "+string(k)+"\n  "+more+"\n", 1)
}

// badRunner is a file with one problem; want is a part of the problem's text.
type badRunner struct{ src, want string }

func badRunners() map[string]badRunner {
	ecs, k8s, docker, local := runnerspec.AWSECS, runnerspec.Kubernetes, runnerspec.Docker, runnerspec.Local
	return map[string]badRunner{
		"an empty file":                        {"", `1:1: the file must be a map, not nothing (null) [wrong-type]`},
		"a kind of another product":            {strings.Replace(minimal(local), "local", "kubernetes-gke", 1), `3:9: "kubernetes-gke" is not a kind of runner [unknown-type]. Did you mean "gcp-gke"?`},
		"a misspelt kind":                      {strings.Replace(minimal(local), "local", "kubernets", 1), `Did you mean "kubernetes"?`},
		"a missing kind":                       {"runner_configuration: {}\nstate_storage_configuration: {type: http}\n", `1:23: runner_configuration lacks the field "type" [missing-field]. The types are: aws-ecs,`},
		"a missing state storage":              {"runner_configuration: {type: local}\n", `1:1: the file lacks the field "state_storage_configuration"`},
		"a field in the wrong map":             {with(docker, "memory_limit: 1Gi"), `4:3: runner_configuration has no field "memory_limit" [unknown-field]. Did you mean "memory_limit" in "job"?`},
		"a field name of another product":      {with(ecs, "job: is_public_ip_enabled: true"), `Did you mean "public_ip"?`},
		"a field of another kind":              {with(local, "job: image: x"), `5:5: runner_configuration.job has no field "image" [unknown-field]`},
		"a repeated field":                     {with(local, "concurrency: 1\n  concurrency: 2"), `5:3: the key "concurrency" is repeated; it is already in line 4 [duplicate-key]`},
		"a repeated variable":                  {with(local, "job: environment: {A: x, A: y}"), `[duplicate-key]`},
		"a number as string":                   {with(local, "job: environment: {A: 1}"), `runner_configuration.job.environment.A must be a string, not a number [wrong-type]. Put quotes around it.`},
		"a concurrency of zero":                {with(local, "concurrency: 0"), `runner_configuration.concurrency must be from 1 to 1000`},
		"a fraction as concurrency":            {with(local, "concurrency: 1.5"), `must be a whole number, not a number`},
		"a reserved variable":                  {with(local, "job: environment: {FAIRLEAD_URL: x}"), `the variable "FAIRLEAD_URL" is reserved [reserved-name]`},
		"a reserved variable in secrets":       {with(local, "job: secrets: {fairlead_x: /a}"), `the variable "fairlead_x" is reserved [reserved-name]`},
		"a secret in plain":                    {with(ecs, "job: secrets: {TOKEN: hunter2}"), `job.secrets.TOKEN must be the ARN of a Secrets Manager secret or an SSM parameter [invalid-value]`},
		"a variable twice":                     {with(k8s, "job: {environment: {A: x}, secrets: {A: s/k}}"), `the variable "A" is in environment and in secrets [duplicate-name]`},
		"a password in a proxy":                {with(local, "job: proxy: {https_proxy: 'http://u:p@proxy'}"), `runner_configuration.job.proxy.https_proxy holds a user or a password, but its value is shown [secret-in-plain]`},
		"a timeout of zero":                    {with(local, "job: timeout: 0s"), `runner_configuration.job.timeout wants a time such as 30s, 20m or 1h30m`},
		"a reserved label":                     {with(k8s, "job: labels: {fairlead.dev/job: x}"), `the label "fairlead.dev/job" is reserved`},
		"a relative folder":                    {with(local, "job: folder: work"), `must be an absolute path, not "work"`},
		"a group with a space":                 {"group: a b\n" + minimal(local), `1:8: group must be names with single slashes between them`},
		"a subnet's name":                      {strings.Replace(minimal(ecs), "subnet-0123456789abcdef0", "private", 1), `7:15: runner_configuration.job.subnets.1 must be a subnet's id`},
		"too many subnets":                     {strings.Replace(minimal(ecs), "[subnet-0123456789abcdef0]", "["+strings.Repeat("subnet-01234567,", 17)+"]", 1), `has 17 items, 16 are allowed`},
		"no subnet":                            {strings.Replace(direct(ecs), "[subnet-0123456789abcdef0]", "[]", 1), `runner_configuration.job lacks the field "subnets" [missing-field]. It is required if auth is set.`},
		"no execution role":                    {strings.Replace(direct(ecs), "    execution_role_arn: arn:aws:iam::123456789012:role/execution\n", "", 1), `lacks the field "execution_role_arn"`},
		"3 CPUs on Fargate":                    {with(ecs, "job: cpu: 3"), `runner_configuration.job.cpu is 3, which Fargate does not support [invalid-value]. It supports: 250m, 500m, 1, 2, 4, 8, 16.`},
		"1 CPU with 1Gi on Fargate":            {with(ecs, "job: memory: 1Gi"), `runner_configuration.job.memory is 1Gi, which Fargate does not support with 1 CPUs [invalid-value]. It supports 2Gi to 8Gi, in steps of 1Gi.`},
		"a disk of 10Gi on Fargate":            {with(ecs, "job: disk: 10Gi"), `disk must be from 21Gi to 200Gi on Fargate`},
		"a task definition and its role":       {with(ecs, "job: task_definition: mine"), `runner_configuration.job.execution_role_arn cannot be set, because task_definition already sets it [conflicting-fields]`},
		"an invalid role":                      {with(ecs, "job: task_role_arn: admin"), `must be a role's ARN such as arn:aws:iam::123456789012:role/name, not "admin"`},
		"an invalid image":                     {with(docker, "job: image: 'UPPER CASE'"), `must be an image's reference, not "UPPER CASE" [invalid-image]`},
		"a volume without a target":            {with(docker, "job: volumes: [/a]"), `runner_configuration.job.volumes.1 must be /host/folder:/container/folder`},
		"more than the limit":                  {with(k8s, "job: {cpu_request: 2, cpu_limit: 500m}"), `runner_configuration.job.cpu_request is 2, more than the limit of 500m`},
		"a cluster without namespace":          {strings.Replace(direct(k8s), "namespace: runners, ", "", 1), `runner_configuration.job lacks the field "namespace" [missing-field]. It is required if cluster is set.`},
		"a cluster without credentials":        {strings.Replace(direct(k8s), "service_account_token: hush", "", 1), `needs either a client certificate with its key, or service_account_token`},
		"a certificate without key":            {strings.Replace(direct(k8s), "service_account_token: hush", "client_certificate_data: aGk=", 1), `needs both client_certificate_data and client_key_data`},
		"an unknown registry":                  {minimal(local) + "registry: {type: docker}\n", `"docker" is not a kind of registry`},
		"a registry without URL":               {minimal(local) + "registry: {type: oci}\n", `registry lacks the field "url"`},
		"a registry with a path":               {minimal(local) + "registry: {type: oci, url: 'https://r/path'}\n", `registry.url must have no path [invalid-value]. Put the path into prefix.`},
		"a login in a registry's URL":          {minimal(local) + "registry: {type: oci, url: 'https://u:hush@r'}\n", `registry.url holds a user or a password, but its value is shown`},
		"a registry's prefix in capitals":      {minimal(local) + "registry: {type: oci, url: 'https://r', prefix: Acme}\n", `registry.prefix must be lower-case names`},
		"a certificate in place of a variable": {minimal(local) + "registry: {type: oci, url: 'https://r', ca: '-----BEGIN CERTIFICATE-----'}\n", `registry.ca must be the name of an environment variable`},
		"a login in place of a variable":       {minimal(local) + "registry: {type: oci, url: 'https://r', credentials: 'a:b'}\n", `registry.credentials must be the name of an environment variable`},
		"a reserved variable as login":         {minimal(local) + "registry: {type: oci, url: 'https://r', credentials: FAIRLEAD_X}\n", `the variable "FAIRLEAD_X" is reserved`},
		"a prefix of the control plane's":      {minimal(local) + "registry: {type: control-plane, prefix: a}\n", `registry has no field "prefix"`},
		"an ECR without a region":              {minimal(local) + "registry: {type: ecr, account: '123456789012'}\n", `registry lacks the field "region"`},
		"a server without TLS":                 {strings.Replace(direct(k8s), "https://k8s", "http://k8s", 1), `runner_configuration.cluster.server must be a URL that begins with https://`},
		"an identity of another product":       {with(ecs, "identity: {type: aws-iam}"), `4:3: runner_configuration has no field "identity" [unknown-field]. The environment of an agent sets how the agent proves its identity.`},
		"a missing field of a storage":         {strings.Replace(minimal(local), "type: http", "type: s3\n  bucket: states", 1), `5:3: state_storage_configuration lacks the field "region"`},
		"a prefix with ..":                     {strings.Replace(minimal(local), "type: http", "type: gcs\n  bucket: states\n  path_prefix: a/../b", 1), `must be without . and .., not "a/../b"`},
		"an anchor":                            {"id: &a mine\n", `1:5: anchors are not supported [unsupported-yaml]`},
		"a repeated field in JSON":             {`{"id":"a","id":"b","runner_configuration":{"type":"local"},"state_storage_configuration":{"type":"http"}}`, `1:11: the key "id" is repeated`},
	}
}

func TestEveryMistakeHasOneProblem(t *testing.T) {
	for consequence, c := range badRunners() {
		t.Run(consequence, func(t *testing.T) {
			r := runnerspec.Parse("runner.yaml", []byte(c.src))
			if r.Spec != nil || !strings.Contains(r.Problems.Error(), c.want) {
				t.Errorf("got %v\nwant %s\nof\n%s", r.Problems, c.want, c.src)
			}
			if len(r.Problems) > 1 {
				t.Errorf("one mistake causes %d problems:\n%v", len(r.Problems), r.Problems)
			}
		})
	}
}

func TestPodTemplateCannotReplaceTheJob(t *testing.T) {
	for consequence, c := range map[string]struct{ template, want string }{
		"an overlay on the container": {`{metadata: {labels: {a: b}}, spec: {containers: [{name: step, env: [{name: A, value: b}], resources: {}}], tolerations: []}}`, ""},
		"a sidecar":                   {`{spec: {initContainers: [{name: proxy, image: ` + digest + `, restartPolicy: Always}]}}`, ""},
		"another container": {`{spec: {containers: [{name: canyon-runner, image: x}]}}`,
			`a job has no container "canyon-runner" [unknown-container]. The container of a job is called step.`},
		"a container without a name": {`{spec: {containers: [{image: ` + digest + `}]}}`, `lacks the field "name"`},
		"a reserved variable":        {`{spec: {containers: [{name: step, env: [{name: FAIRLEAD_LAUNCH_TOKEN, value: x}]}]}}`, `the variable "FAIRLEAD_LAUNCH_TOKEN" is reserved`},
		"another service account":    {`{spec: {serviceAccountName: admin}}`, `spec.serviceAccountName cannot be set by a pod template [reserved-name]. Set it in job.service_account.`},
		"another namespace":          {`{metadata: {namespace: kube-system}}`, `metadata has no field "namespace"`},
		"another command":            {`{spec: {containers: [{name: step, command: [sh]}]}}`, `the field "command" of the container step cannot be set`},
		"a directive that removes":   {`{spec: {containers: [{name: step, $patch: delete}]}}`, `holds the directive "$patch" [reserved-name]`},
		"a misspelt field":           {`{spec: {nodeSelectr: {}}}`, `spec has no field "nodeSelectr" [unknown-field]. Did you mean "nodeSelector"?`},
		"a restart policy":           {`{spec: {restartPolicy: Always}}`, `spec.restartPolicy cannot be set`},
		"a list":                     {`[]`, `pod_template must be a map, not a list`},
	} {
		t.Run(consequence, func(t *testing.T) {
			r := runnerspec.Parse("r", []byte(with(runnerspec.Kubernetes, "job: pod_template: "+c.template)))
			if (r.Spec != nil) != (c.want == "") || !strings.Contains(r.Problems.Error(), c.want) {
				t.Errorf("got %v, want %s", r.Problems, c.want)
			}
		})
	}
}

func TestUpdateMergesAndKeepsIdentity(t *testing.T) {
	before := parse(t, with(runnerspec.Docker, "job: {environment: {A: x, B: y}, volumes: ['/a:/a', '/b:/b'], registry: {username: u, password: hush}}"))
	for consequence, c := range map[string]struct {
		patch string
		want  string // part of a problem; "": none
		check func(*runnerspec.Spec) bool
	}{
		"an empty patch changes nothing": {"{}", "", func(s *runnerspec.Spec) bool { return fmt.Sprint(s.Secrets()) == "[hush]" && s.ID == "mine" }},
		"maps are merged": {"runner_configuration: {job: {environment: {B: z, C: w}}}", "", func(s *runnerspec.Spec) bool {
			return fmt.Sprint(s.Runner.(*runnerspec.DockerRunner).Job.Environment) == "map[A:x B:z C:w]"
		}},
		"null removes": {"runner_configuration: {job: {environment: {A: null}, registry: null}}", "", func(s *runnerspec.Spec) bool {
			j := s.Runner.(*runnerspec.DockerRunner).Job
			return fmt.Sprint(j.Environment) == "map[B:y]" && j.Registry == nil
		}},
		"lists are replaced": {"runner_configuration: {job: {volumes: ['/c:/c']}}", "", func(s *runnerspec.Spec) bool {
			return fmt.Sprint(s.Runner.(*runnerspec.DockerRunner).Job.Volumes) == "[/c:/c]"
		}},
		"a mask keeps the secret": {"runner_configuration: {job: {registry: {username: v, password: (masked)}}}", "", func(s *runnerspec.Spec) bool {
			return s.Runner.(*runnerspec.DockerRunner).Job.Registry.Username == "v" && fmt.Sprint(s.Secrets()) == "[hush]"
		}},
		"another secret replaces the secret": {"runner_configuration: {job: {registry: {password: other}}}", "", func(s *runnerspec.Spec) bool { return fmt.Sprint(s.Secrets()) == "[other]" }},
		"another storage type drops all old fields": {"state_storage_configuration: {type: s3, bucket: states, region: eu-west-1}", "", func(s *runnerspec.Spec) bool {
			return s.Storage.Place("run_1") == "//states/"
		}},
		"the same type is accepted":                 {"id: mine\nrunner_configuration: {type: docker}", "", func(s *runnerspec.Spec) bool { return s.Runner.Kind() == runnerspec.Docker }},
		"the type is immutable":                     {"runner_configuration:\n  type: local", `2:9: the field "type" is "docker" and cannot be changed [immutable-field]`, nil},
		"the ID is immutable":                       {"id: other", `1:5: the field "id" is "mine" and cannot be changed`, nil},
		"a misspelt field is reported at its place": {"runner_configuration:\n  job:\n    volums: []", `3:5: runner_configuration.job has no field "volums" [unknown-field]. Did you mean "volumes"?`, nil},
		"a required field cannot be removed":        {"runner_configuration: null", `the file lacks the field "runner_configuration"`, nil},
	} {
		t.Run(consequence, func(t *testing.T) {
			r := runnerspec.Update(before, "patch", []byte(c.patch))
			if c.want != "" {
				if r.Spec != nil || !strings.Contains(r.Problems.Error(), c.want) {
					t.Errorf("got %v, want %s", r.Problems, c.want)
				}
			} else if r.Spec == nil || !c.check(r.Spec) {
				t.Errorf("result %+v, problems %v", r.Spec, r.Problems)
			}
		})
	}
}

func TestSettingsOverrideTheFile(t *testing.T) {
	all := []string{"runner_configuration.type=docker", "runner_configuration.job.cpu_limit=2", "runner_configuration.job.extra_hosts=[\"db:10.0.0.7\"]", "state_storage_configuration={type: http}", "description=a: b, or c"}
	r := runnerspec.Parse("runner", nil, all...)
	if r.Spec == nil {
		t.Fatal(r.Problems)
	}
	j := r.Spec.Runner.(*runnerspec.DockerRunner).Job
	if j.CPULimit != 2000 || fmt.Sprint(j.ExtraHosts) != "[db:10.0.0.7]" || r.Spec.Description != "a: b, or c" {
		t.Errorf("spec %+v, job %+v", r.Spec, j)
	}

	// A setting overrides the file and an earlier setting of the same field. Other fields
	// of the file keep their values.
	r = runnerspec.Parse("runner", []byte(with(runnerspec.Docker, "job: {cpu_limit: 1, memory_limit: 1Gi}")), "runner_configuration.job.cpu_limit=3", "runner_configuration.job.cpu_limit=4")
	if j := r.Spec.Runner.(*runnerspec.DockerRunner).Job; j.CPULimit != 4000 || j.MemoryLimit != 1<<30 {
		t.Errorf("job %+v", j)
	}
	r = runnerspec.Update(r.Spec, "patch", nil, "runner_configuration.job.cpu_limit=null", "runner_configuration.job.environment.A=x")
	if j := r.Spec.Runner.(*runnerspec.DockerRunner).Job; j.CPULimit != 0 || j.MemoryLimit != 1<<30 || j.Environment["A"] != "x" {
		t.Errorf("job after an update: %+v", j)
	}

	for setting, want := range map[string]string{
		"concurrency":                               "--set concurrency:1:1: the setting must be a path and a value [invalid-setting]. Write the path of a field",
		"runner_configuration..cpu=1":               "--set runner_configuration..cpu:1:1: the setting must be a path and a value",
		"=1":                                        "the setting must be a path and a value",
		"runner_configuration.job.cpu=1":            `--set runner_configuration.job.cpu:1:1: runner_configuration.job has no field "cpu" [unknown-field]. Did you mean "cpu_limit"?`,
		"runner_configuration.concurrency=many":     "--set runner_configuration.concurrency:1:1: runner_configuration.concurrency must be a whole number, not a string",
		"runner_configuration.job.cpu_limit=":       "runner_configuration.job.cpu_limit wants CPUs",
		"state_storage_configuration.type=postgres": `"postgres" is not a kind of state storage`,
	} {
		r := runnerspec.Parse("runner", []byte(minimal(runnerspec.Docker)), setting)
		if r.Spec != nil || !strings.Contains(r.Problems.Error(), want) {
			t.Errorf("--set %s: problems %v, want %s", setting, r.Problems, want)
		}
	}
}

func TestImageByTagGetsAWarning(t *testing.T) {
	r := runnerspec.Parse("r", []byte(with(runnerspec.Docker, "job: image: registry.example.com/runner:1.2")))
	want := `r:5:12: the image "registry.example.com/runner:1.2" has a tag, which may later refer to another image [image-by-tag]. Use its digest: registry.example.com/runner@sha256:…`
	if r.Spec == nil || len(r.Warnings) != 1 || r.Warnings[0].String() != want {
		t.Errorf("got %v, warnings %v", r.Problems, r.Warnings)
	}
	if r := runnerspec.Parse("r", []byte(with(runnerspec.Docker, "job: image: "+digest))); len(r.Warnings) != 0 || r.Spec == nil {
		t.Errorf("an image by digest: %v, %v", r.Problems, r.Warnings)
	}
}

func TestSizesAndCPUsAreParsed(t *testing.T) {
	for text, want := range map[string]runnerspec.Size{
		"1": 1, "512Mi": 512 << 20, "2Gi": 2 << 30, "0.5Gi": 512 << 20, "42 MB": 42_000_000, "1k": 1000, "1K": 1000, "1Ti": 1 << 40, "2GiB": 2 << 30,
		"": 0, "0": 0, "-1": 0, "1.2": 0, "x": 0, "1XB": 0, "1e9": 0, "99999999999999999999": 0, "9999999Ti": 0, "Mi": 0, "1.Mi.": 0,
	} {
		var got runnerspec.Size
		if err := got.UnmarshalText([]byte(text)); got != want || (err == nil) != (want > 0) {
			t.Errorf("size %q: %d bytes, %v; want %d", text, int64(got), err, int64(want))
		}
		if want > 0 {
			var again runnerspec.Size
			if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
				t.Errorf("size %q is written as %s, which is read as %d, %v", text, got, int64(again), err)
			}
		}
	}
	for text, want := range map[string]runnerspec.CPU{"2": 2000, "0.5": 500, "500m": 500, "1.5": 1500, "": 0, "0": 0, "m": 0, "0.5m": 0, "0.0001": 0, "2x": 0} {
		var got runnerspec.CPU
		if err := got.UnmarshalText([]byte(text)); got != want || (err == nil) != (want > 0) {
			t.Errorf("CPUs %q: %d thousandths, %v; want %d", text, int64(got), err, int64(want))
		}
	}
}

// The states of two runners have the same place only if they would overwrite each
// other.
func TestPlaceIdentifiesTheStates(t *testing.T) {
	place := func(storage, runner string) string {
		s := parse(t, strings.Replace(minimal(runnerspec.Docker), "type: http", storage, 1))
		return string(s.Storage.Kind()) + s.Storage.Place(runner)
	}
	const bucket = "type: s3\n  region: eu-west-1\n  bucket: states"
	for consequence, c := range map[string]struct {
		a, b string
		same bool
	}{
		"a bucket is shared by all runners": {place(bucket, "a"), place(bucket, "b"), true},
		"the region does not matter":        {place(bucket, "a"), place(strings.Replace(bucket, "eu-west-1", "us-east-1", 1), "a"), true},
		"another prefix is another place":   {place(bucket, "a"), place(bucket+"\n  path_prefix: x", "a"), false},
		"another server is another place":   {place(bucket, "a"), place(bucket+"\n  endpoint: https://minio", "a"), false},
		"the key does not matter":           {place(bucket, "a"), place(bucket+"\n  kms_key_id: x", "a"), true},
		"each machine is another place":     {place("type: local", "a"), place("type: local", "b"), false},
		"each folder is another place":      {place("type: local", "a"), place("type: local\n  path: /x", "a"), false},
		"there is one control plane":        {place("type: http", "a"), place("type: http", "b"), true},
		"a bucket is not the control plane": {place(bucket, "a"), place("type: http", "a"), false},
	} {
		if (c.a == c.b) != c.same {
			t.Errorf("%s: %s and %s", consequence, c.a, c.b)
		}
	}
}

func TestEveryKindAcceptsAnEmptyUpdate(t *testing.T) {
	for _, k := range runnerspec.Kinds() {
		for _, src := range []string{bare(k), minimal(k), direct(k)} {
			s := parse(t, src)
			if s.Runner.Kind() != k {
				t.Errorf("%s is read as %s", k, s.Runner.Kind())
			}
			if r := runnerspec.Update(s, "p", []byte("{}")); r.Spec == nil {
				t.Errorf("%s: %v", k, r.Problems)
			}
			s.Masked()
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, k := range runnerspec.Kinds() {
		f.Add(direct(k))
		f.Add(with(k, "job: {labels: {a: b}, pod_template: {spec: {containers: [{name: step}]}}}"))
	}
	f.Add(`{"id":"a","runner_configuration":[],"state_storage_configuration":{"type":{}}}`)
	schema := compiledSchema(f)
	f.Fuzz(func(t *testing.T, src string) {
		r := runnerspec.Parse("r", []byte(src))
		if (r.Spec == nil) != (len(r.Problems) > 0) {
			t.Fatalf("want either a spec or problems, got spec %t and %d problems", r.Spec != nil, len(r.Problems))
		}
		if r.Spec == nil {
			return
		}
		value, _ := instance(src)
		if err := schema.Validate(value); err != nil {
			t.Fatalf("the schema refuses a valid runner: %v", err)
		}
		r.Spec.Masked()
		if u := runnerspec.Update(r.Spec, "p", []byte("{}")); u.Spec == nil {
			t.Fatalf("an empty update is refused: %v", u.Problems)
		}
	})
}
