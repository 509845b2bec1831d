package launchconfig_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/config"
	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/runner/internal/launchconfig"
)

const (
	common = "state_storage_configuration.type=http"
	kind   = "runner_configuration.type="
	ecsJob = "runner_configuration.job={region: eu-west-1, cluster: runners, subnets: [subnet-0123456789abcdef0], execution_role_arn: 'arn:aws:iam::123456789012:role/execution'}"
	uuid   = "01234567-89ab-cdef-0123-456789abcdef"
	other  = "fedcba98-7654-3210-fedc-ba9876543210"
	role   = "arn:aws:iam::123456789012:role/manager"
)

// installed is the least that a runner of the kind says whose agent is where its
// jobs run.
func installed(k runnerspec.Kind) []string {
	least := []string{common, kind + string(k)}
	if k == runnerspec.AWSECS {
		least = append(least, ecsJob)
	}
	return least
}

// direct is the least of one that is reached from beside the control plane.
func direct(k runnerspec.Kind) []string {
	reach := map[runnerspec.Kind]string{
		runnerspec.AWSECS:     "auth={role_arn: '" + role + "'}",
		runnerspec.AWSEKS:     "cluster={name: c, region: eu-west-1, auth: {role_arn: '" + role + "'}}",
		runnerspec.AzureAKS:   "cluster={name: c, resource_group: g, subscription_id: " + uuid + ", auth: {tenant_id: " + uuid + ", client_id: " + uuid + "}}",
		runnerspec.GCPGKE:     "cluster={name: c, project_id: p, location: l, auth: {gcp_audience: //iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q, gcp_service_account: r@p.iam.gserviceaccount.com}}",
		runnerspec.Kubernetes: "cluster={server: 'https://k8s.example.com', auth: {service_account_token: hush}}",
	}[k]
	least := append(installed(k), "runner_configuration."+reach)
	if k != runnerspec.AWSECS {
		least = append(least, "runner_configuration.job.namespace=runners", "runner_configuration.job.service_account=jobs")
	}
	return least
}

func read(t *testing.T, settings []string) *runnerspec.Spec {
	t.Helper()
	r := runnerspec.Parse("runner.yaml", nil, settings...)
	if r.Spec == nil {
		t.Fatalf("%v\nof\n%s", r.Problems, strings.Join(settings, "\n"))
	}
	return r.Spec
}

// environment is that of an agent about which nothing is said but what its
// executor cannot do without.
func environment(direct bool) launchconfig.Environment {
	return launchconfig.Environment{Direct: direct, Docker: config.Docker{PasswordFile: "/run/password"}}
}

// told is what the control plane itself makes of a configuration: it is in the
// signed spec of each job, in the job's terms, or holds jobs back.
type told struct {
	Environment   map[string]string
	Endpoint      string
	Timeout       string
	StartWindow   string
	NoOutput      string
	Grace         string
	AtOnce        int
	SecretsSealed []string
}

// lines are all that follows from a configuration, one for each value.
func lines(t *testing.T, s *runnerspec.Spec, direct bool) []string {
	t.Helper()
	su, err := launchconfig.Of(s.Runner, environment(direct))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	flatten("", reflect.ValueOf(su), &out)
	flatten("control", reflect.ValueOf(told{Environment: s.Environment(), Endpoint: s.JobEndpoint(), Timeout: fmt.Sprint(s.JobTimeout()),
		StartWindow: fmt.Sprint(s.StartWindow()), NoOutput: fmt.Sprint(s.NoOutput()), Grace: fmt.Sprint(s.StopGrace()), AtOnce: s.Concurrency(), SecretsSealed: s.Secrets()}), &out)
	return out
}

func flatten(path string, v reflect.Value, out *[]string) {
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
	case v.Kind() == reflect.Pointer:
		flatten(path, v.Elem(), out)
	case v.Type() == reflect.TypeFor[[]byte]():
		if v.Len() > 0 {
			*out = append(*out, path+"="+string(v.Bytes()))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name := path + "." + f.Name
			if f.Anonymous {
				name = path
			}
			flatten(strings.TrimPrefix(name, "."), v.Field(i), out)
		}
	case v.Kind() == reflect.Map:
		for _, k := range v.MapKeys() {
			*out = append(*out, fmt.Sprintf("%s.%s=%v", path, k, v.MapIndex(k)))
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			*out = append(*out, fmt.Sprintf("%s=%v", path, v.Index(i)))
		}
	case v.Type() == reflect.TypeFor[runnerspec.Secret]():
		if !v.IsZero() {
			*out = append(*out, path+"=a secret of "+fmt.Sprint(v.Len())) // formatting one shows nothing
		}
	case v.Type() == reflect.TypeFor[config.MilliCPU]() && !v.IsZero():
		*out = append(*out, path+"="+runnerspec.CPU(v.Int()).String())
	case v.Type() == reflect.TypeFor[config.Bytes]() && !v.IsZero():
		*out = append(*out, path+"="+runnerspec.Size(v.Int()).String())
	case !v.IsZero():
		*out = append(*out, fmt.Sprintf("%s=%v", path, v.Interface()))
	}
}

// lands says what a value of a field becomes: lines that are new with it.
type lands struct {
	value   string
	lines   []string
	refused bool     // the field would have no effect, so it is a problem
	with    []string // other fields that it cannot be without
}

func in(prefix string, rows map[string]lands) map[string]lands {
	out := map[string]lands{}
	for name, row := range rows {
		out[prefix+name] = row
	}
	return out
}

// everywhere are the fields of all kinds.
func everywhere() map[string]lands {
	return map[string]lands{
		"endpoint":    {value: "https://fairlead.example.com", lines: []string{"StepURL=https://fairlead.example.com"}},
		"concurrency": {value: "7", lines: []string{"Concurrency=7", "control.AtOnce=7"}},
		"version":     {value: "v1.2.3"}, // the agent is told, and sets nothing
		"channel":     {value: "stable"},

		"job.endpoint":          {value: "https://inside.example.com", lines: []string{"StepURL=https://inside.example.com", "control.Endpoint=https://inside.example.com"}},
		"job.environment":       {value: "{TF_LOG: debug}", lines: []string{"control.Environment.TF_LOG=debug"}},
		"job.proxy.http_proxy":  {value: "http://p:1", lines: []string{"Environ.http_proxy=http://p:1", "Environ.HTTP_PROXY=http://p:1", "control.Environment.http_proxy=http://p:1", "control.Environment.HTTP_PROXY=http://p:1"}},
		"job.proxy.https_proxy": {value: "http://p:2", lines: []string{"Environ.https_proxy=http://p:2", "Environ.HTTPS_PROXY=http://p:2", "control.Environment.https_proxy=http://p:2", "control.Environment.HTTPS_PROXY=http://p:2"}},
		"job.proxy.no_proxy":    {value: "10.0.0.0/8", lines: []string{"Environ.no_proxy=10.0.0.0/8", "Environ.NO_PROXY=10.0.0.0/8", "control.Environment.no_proxy=10.0.0.0/8", "control.Environment.NO_PROXY=10.0.0.0/8"}},
		"job.timeout":           {value: "20m", lines: []string{"control.Timeout=20m0s"}},
		"job.start_timeout":     {value: "90s", lines: []string{"control.StartWindow=1m30s"}},
		"job.no_output_timeout": {value: "15m", lines: []string{"control.NoOutput=15m0s"}},
		"job.stop_grace":        {value: "40s", lines: []string{"control.Grace=40s"}},
	}
}

func ofKubernetes() map[string]lands {
	rows := in("job.", map[string]lands{
		"namespace":         {value: "n", lines: []string{"Kubernetes.Namespace=n"}},
		"service_account":   {value: "sa", lines: []string{"Kubernetes.ServiceAccount=sa"}},
		"image":             {value: "r.example/i:1", lines: []string{"Kubernetes.Image=r.example/i:1"}},
		"image_pull_policy": {value: "Always", lines: []string{"Kubernetes.Pull=Always"}},
		"pull_secrets":      {value: "[regcred]", lines: []string{"Kubernetes.PullSecrets=regcred"}},
		"cpu_request":       {value: "250m", lines: []string{"Kubernetes.CPURequest=250m"}},
		"cpu_limit":         {value: "2", lines: []string{"Kubernetes.CPULimit=2"}},
		"memory_request":    {value: "1Gi", lines: []string{"Kubernetes.MemoryRequest=1Gi"}},
		"memory_limit":      {value: "2Gi", lines: []string{"Kubernetes.MemoryLimit=2Gi"}},
		"disk":              {value: "5Gi", lines: []string{"Kubernetes.Disk=5Gi"}},
		"node_selector":     {value: "{disk: ssd, arch: arm64}", lines: []string{"Kubernetes.NodeSelector=arch=arm64", "Kubernetes.NodeSelector=disk=ssd"}},
		"labels":            {value: "{team: blue}", lines: []string{"Kubernetes.Labels=team=blue"}},
		"pod_template":      {value: "{metadata: {annotations: {note: x}}}", lines: []string{`Kubernetes.PodTemplate={"metadata":{"annotations":{"note":"x"}}}`}},
		"secrets":           {value: "{LICENCE: vault/key}", lines: []string{"SecretEnv=LICENCE", "Kubernetes.Secrets.LICENCE=vault/key"}},
		"start_timeout":     {value: "90s", lines: []string{"control.StartWindow=1m30s", "Kubernetes.StartTimeout=1m30s"}},
		"stop_grace":        {value: "40s", lines: []string{"control.Grace=40s", "Kubernetes.StopGrace=40s"}},
	})
	return rows
}

func ofAWSAuth(at string) map[string]lands {
	return in(at, map[string]lands{
		"role_arn":     {value: "arn:aws:iam::123456789012:role/two"},
		"external_id":  {value: "x1"},
		"session_name": {value: "s1"},
		"sts_region":   {value: "eu-west-2"},
	})
}

// rows are where the fields of a kind land.
func rows(k runnerspec.Kind) map[string]lands {
	all := everywhere()
	add := func(more map[string]lands) {
		for name, row := range more {
			all[name] = row
		}
	}
	reach := func(field, goField string, values map[string]string) {
		for name, value := range values {
			all["cluster."+name] = lands{value: value, lines: []string{"Kubernetes.Reach." + field + "." + goField + "*"}}
		}
	}
	switch k {
	case runnerspec.AWSEKS, runnerspec.AzureAKS, runnerspec.GCPGKE, runnerspec.Kubernetes:
		add(ofKubernetes())
	}
	const proxy = "http://proxy.example.com:3128"
	switch k {
	case runnerspec.AWSEKS:
		reach("EKS", "", map[string]string{"name": "d", "region": "eu-west-2", "proxy_url": proxy, "auth.role_arn": "arn:aws:iam::123456789012:role/two", "auth.external_id": "x1", "auth.session_name": "s1", "auth.sts_region": "eu-west-2"})
	case runnerspec.AzureAKS:
		reach("AKS", "", map[string]string{"name": "d", "resource_group": "h", "subscription_id": other, "proxy_url": proxy, "auth.tenant_id": other, "auth.client_id": other})
	case runnerspec.GCPGKE:
		reach("GKE", "", map[string]string{"name": "d", "project_id": "q", "location": "m", "internal_ip": "true", "proxy_url": proxy,
			"auth.gcp_audience": "//iam.googleapis.com/projects/2/locations/global/workloadIdentityPools/p/providers/q", "auth.gcp_service_account": "s@p.iam.gserviceaccount.com"})
	case runnerspec.Kubernetes:
		reach("Kubernetes", "", map[string]string{"server": "https://two.example.com", "certificate_authority_data": "eA==", "proxy_url": proxy})
		certificate := []string{"runner_configuration.cluster.auth={service_account_token: null, client_certificate_data: eA==, client_key_data: eQ==}"}
		add(map[string]lands{
			"cluster.auth.service_account_token":   {value: "hushhush", lines: []string{"Kubernetes.Reach.Kubernetes.Auth.ServiceAccountToken=a secret of 8", "control.SecretsSealed=hushhush"}},
			"cluster.auth.client_key_data":         {value: "eXl5eQ==", lines: []string{"Kubernetes.Reach.Kubernetes.Auth.ClientKeyData=a secret of 8", "control.SecretsSealed=eXl5eQ=="}, with: certificate},
			"cluster.auth.client_certificate_data": {value: "eHg=", lines: []string{"Kubernetes.Reach.Kubernetes.Auth.ClientCertificateData=eHg="}, with: certificate},
		})
	case runnerspec.AWSECS:
		const secret = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:x"
		image := []string{"runner_configuration.job.image=r.example/i:1"}
		add(in("job.", map[string]lands{
			"region":             {value: "eu-west-2", lines: []string{"ECS.Region=eu-west-2"}},
			"cluster":            {value: "c2", lines: []string{"ECS.Cluster=c2"}},
			"subnets":            {value: "[subnet-0123456789abcdef1]", lines: []string{"ECS.Subnets=subnet-0123456789abcdef1"}},
			"security_groups":    {value: "[sg-0123456789abcdef1]", lines: []string{"ECS.SecurityGroups=sg-0123456789abcdef1"}},
			"public_ip":          {value: "true", lines: []string{"ECS.PublicIP=true"}},
			"launch_type":        {value: "ec2", lines: []string{"ECS.LaunchType=ec2"}},
			"task_definition":    {value: "runner:7", lines: []string{"ECS.TaskDefinition=runner:7"}, with: []string{"runner_configuration.job.execution_role_arn=null"}},
			"task_role_arn":      {value: role, lines: []string{"ECS.TaskRole=" + role}},
			"execution_role_arn": {value: role, lines: []string{"ECS.ExecutionRole=" + role}},
			"image":              {value: "r.example/i:1", lines: []string{"ECS.Definition.Image=r.example/i:1"}},
			"pull_secret":        {value: secret, lines: []string{"ECS.Definition.PullSecret=" + secret}, with: image},
			"cpu":                {value: "2", lines: []string{"ECS.CPU=2"}, with: []string{"runner_configuration.job.memory=4Gi"}},
			"memory":             {value: "4Gi", lines: []string{"ECS.Memory=4Gi"}},
			"disk":               {value: "30Gi", lines: []string{"ECS.Disk=30Gi"}},
			"log_group":          {value: "/jobs", lines: []string{"ECS.LogGroup=/jobs"}},
			"labels":             {value: "{team: blue}", lines: []string{"ECS.Tags=team=blue"}},
			"secrets":            {value: "{LICENCE: '" + secret + "'}", lines: []string{"SecretEnv=LICENCE", "ECS.Definition.Secrets.LICENCE=" + secret}, with: image},
			"start_timeout":      {value: "90s", lines: []string{"control.StartWindow=1m30s", "ECS.StartTimeout=1m30s"}},
			"stop_grace":         {value: "40s", lines: []string{"control.Grace=40s", "ECS.Definition.StopGrace=40s"}, with: image},
		}))
		for name, row := range ofAWSAuth("auth.") {
			row.lines = []string{"ECS.Auth.*"}
			all[name] = row
		}
	case runnerspec.Docker:
		registry := []string{"runner_configuration.job.registry={username: somebody, password: hush}"}
		all["host"] = lands{value: "unix:///other.sock", lines: []string{"Docker.Host=unix:///other.sock"}}
		add(in("job.", map[string]lands{
			"image":             {value: "r.example/i:1", lines: []string{"Docker.Image=r.example/i:1"}},
			"image_pull_policy": {value: "Never", lines: []string{"Docker.Pull=Never"}},
			"registry.username": {value: "ci", lines: []string{"Docker.Username=ci"}, with: registry},
			"registry.password": {value: "hushhush", lines: []string{"control.SecretsSealed=hushhush"}, with: registry}, // and in the file of the environment
			"cpu_limit":         {value: "2", lines: []string{"Docker.CPU=2"}},
			"memory_limit":      {value: "2Gi", lines: []string{"Docker.Memory=2Gi"}},
			"volumes":           {value: "['/srv:/srv:ro']", lines: []string{"Docker.Volumes=/srv:/srv:ro"}},
			"extra_hosts":       {value: "['db:10.0.0.7']", lines: []string{"Docker.ExtraHosts=db:10.0.0.7"}},
			"network":           {value: "host", lines: []string{"Docker.Network=host"}},
			"labels":            {value: "{team: blue}", lines: []string{"Docker.Labels=team=blue"}},
			"secrets":           {value: "{LICENCE: /run/licence}", lines: []string{"SecretEnv=LICENCE", "SecretFiles.LICENCE=/run/licence"}},
			"stop_grace":        {value: "40s", lines: []string{"control.Grace=40s", "Docker.StopGrace=40s"}},
		}))
	case runnerspec.Local:
		add(in("job.", map[string]lands{
			"folder":  {value: "/srv/jobs", lines: []string{"Process.Folder=/srv/jobs"}},
			"secrets": {value: "{LICENCE: /run/licence}", lines: []string{"SecretEnv=LICENCE", "SecretFiles.LICENCE=/run/licence"}},
			"labels":  {value: "{team: blue}", refused: true},
		}))
	}
	return all
}

// TestEveryFieldLands goes through the schema of every kind: a field that changes
// nothing, or has no row that says what it changes, fails.
func TestEveryFieldLands(t *testing.T) {
	for _, k := range runnerspec.Kinds() {
		rows := rows(k)
		fields := runnerspec.RunnerFields(k)
		for _, f := range fields {
			if slices.ContainsFunc(fields, func(g runnerspec.Field) bool { return strings.HasPrefix(g.Path, f.Path+".") }) {
				continue // it holds others
			}
			name := strings.TrimPrefix(f.Path, "runner_configuration.")
			if name == "type" {
				continue // TestTheKindNamesTheExecutor
			}
			row, ok := rows[name]
			delete(rows, name)
			if !ok {
				t.Errorf("%s: nobody says where %s lands", k, name)
				continue
			}
			t.Run(string(k)+"/"+name, func(t *testing.T) { check(t, k, f.Path, row) })
		}
		for name := range rows {
			t.Errorf("%s: there is a row for %s, which is no field", k, name)
		}
	}
}

func check(t *testing.T, k runnerspec.Kind, path string, row lands) {
	outside := strings.Contains(path, ".cluster.") || strings.HasPrefix(path, "runner_configuration.auth.")
	base := installed(k)
	if outside {
		base = direct(k)
	}
	base = append(base, row.with...)
	set := append(slices.Clone(base), path+"="+row.value)
	if row.refused {
		if r := runnerspec.Parse("runner.yaml", nil, set...); r.Spec != nil {
			t.Error("it is accepted, and would have no effect")
		}
		return
	}
	before := base
	if slices.ContainsFunc(row.with, func(s string) bool { return strings.HasPrefix(s, path+"=") }) {
		before = slices.DeleteFunc(slices.Clone(base), func(s string) bool { return strings.HasPrefix(s, path+"=") })
	}
	if r := runnerspec.Parse("runner.yaml", nil, before...); r.Spec == nil {
		before = installed(k) // it cannot be left out of the rest
		if outside {
			before = direct(k)
		}
	}
	was := lines(t, read(t, before), outside)
	var isNew []string
	for _, l := range lines(t, read(t, set), outside) {
		if !slices.Contains(was, l) {
			isNew = append(isNew, l)
		}
	}
	for _, want := range row.lines {
		prefix, any := strings.CutSuffix(want, "*")
		if i := slices.IndexFunc(isNew, func(l string) bool {
			return l == want || any && strings.HasPrefix(l, prefix) && strings.Contains(l, row.value)
		}); i >= 0 {
			isNew = slices.Delete(isNew, i, i+1)
		} else {
			t.Errorf("it does not become %s", want)
		}
	}
	// Companions that could not be left out before are not the field's.
	companions := strings.Join(row.with, " ")
	for _, l := range isNew {
		_, value, _ := strings.Cut(l, "=")
		if !strings.Contains(companions, value) && !strings.HasPrefix(l, "ECS.Definition.Image") {
			t.Errorf("it also becomes %s", l)
		}
	}
}

func TestTheKindNamesTheExecutor(t *testing.T) {
	for k, want := range map[runnerspec.Kind][3]string{ // for an environment that says nothing, process, docker
		runnerspec.AWSECS: {"ecs", "ecs", "ecs"}, runnerspec.AWSEKS: {"kubernetes", "kubernetes", "kubernetes"},
		runnerspec.AzureAKS: {"kubernetes", "kubernetes", "kubernetes"}, runnerspec.GCPGKE: {"kubernetes", "kubernetes", "kubernetes"},
		runnerspec.Kubernetes: {"kubernetes", "kubernetes", "kubernetes"}, runnerspec.Docker: {"docker", "docker", "docker"},
		runnerspec.Local: {"process", "process", "docker"}, // nobody has said that, so the environment may
	} {
		for i, named := range []string{"", "process", "docker"} {
			env := environment(false)
			env.Executor = named
			s, err := launchconfig.Of(read(t, installed(k)).Runner, env)
			if err != nil || s.Executor != want[i] {
				t.Errorf("%s where the environment names %q: %s, %v, want %s", k, named, s.Executor, err, want[i])
			}
		}
	}
}

// What a configuration leaves out is the environment's.
func TestTheEnvironmentFillsIn(t *testing.T) {
	env := launchconfig.Environment{StepURL: "https://inside", Concurrency: 3,
		Docker:     config.Docker{Image: "d", Network: "n", PIDs: 12, HostData: "/data"},
		Kubernetes: config.Kubernetes{Namespace: "n", Image: "k", MemoryRequest: 1 << 20, StartTimeout: time.Minute, Data: "/d", Labels: []string{"a=b"}},
		ECS:        config.ECS{Cluster: "c", TaskDefinition: "d", LogGroup: "g"}}
	d, err := launchconfig.Of(read(t, append(installed(runnerspec.Docker), "runner_configuration.job.network=mine", "runner_configuration.concurrency=9")).Runner, env)
	if err != nil || d.Docker.Image != "d" || d.Docker.Network != "mine" || d.Docker.PIDs != 12 || d.Docker.HostData != "/data" || d.StepURL != "https://inside" {
		t.Errorf("%+v, %v", d, err)
	}
	if d.Concurrency != 3 {
		t.Errorf("%d jobs at once on a machine that is to hold 3", d.Concurrency)
	}
	k, err := launchconfig.Of(read(t, append(installed(runnerspec.AzureAKS), "runner_configuration.job.namespace=m")).Runner, env)
	if err != nil || k.Kubernetes.Namespace != "m" || k.Kubernetes.Image != "k" || k.Kubernetes.MemoryRequest != 1<<20 || k.Kubernetes.StartTimeout != time.Minute || k.Kubernetes.Labels[0] != "a=b" {
		t.Errorf("%+v, %v", k.Kubernetes, err)
	}
	e, err := launchconfig.Of(read(t, installed(runnerspec.AWSECS)).Runner, env)
	if err != nil || e.ECS.Cluster != "runners" || e.ECS.TaskDefinition != "d" || e.ECS.Definition != nil || e.ECS.LogGroup != "g" {
		t.Errorf("%+v, %v", e.ECS, err)
	}
	env.ECS.Image = "i"
	if e, err = launchconfig.Of(read(t, installed(runnerspec.AWSECS)).Runner, env); err != nil || e.ECS.Definition == nil || e.ECS.Definition.Image != "i" || e.ECS.TaskDefinition != "" {
		t.Errorf("%+v, %v", e.ECS, err)
	}
	if alone := launchconfig.Alone(env); alone.Executor != "process" || alone.Docker.Image != "d" || alone.StepURL != "https://inside" || alone.Concurrency != 3 {
		t.Errorf("%+v", alone)
	}
}

// The environment of an agent beside the control plane is the control plane's: it
// does not know where the jobs of a runner are, and its machine holds none.
func TestBesideTheControlPlaneTheConfigurationComesFirst(t *testing.T) {
	env := launchconfig.Environment{Direct: true, StepURL: "https://public", Concurrency: 3}
	with := append(direct(runnerspec.Kubernetes), "runner_configuration.concurrency=9")
	s, err := launchconfig.Of(read(t, with).Runner, env)
	if err != nil || s.StepURL != "https://public" || s.Concurrency != 9 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = launchconfig.Of(read(t, append(with, "runner_configuration.endpoint=https://theirs")).Runner, env); err != nil || s.StepURL != "https://theirs" {
		t.Errorf("%+v, %v", s, err)
	}
}

// What cannot be followed is told with what to do.
func TestWhatCannotBeFollowed(t *testing.T) {
	for name, tc := range map[string]struct {
		settings []string
		env      launchconfig.Environment
		says     string
	}{
		"an installed agent of a runner that is reached":  {direct(runnerspec.Kubernetes), launchconfig.Environment{}, "beside the control plane"},
		"an agent beside the control plane without a way": {installed(runnerspec.Kubernetes), launchconfig.Environment{Direct: true}, "does not say how"},
		"a password that stays where it is":               {append(installed(runnerspec.Docker), "runner_configuration.job.registry={username: u, password: p}"), launchconfig.Environment{}, "FAIRLEAD_DOCKER_REGISTRY_PASSWORD_FILE"},
		"secrets of a task definition that is not made":   {append(installed(runnerspec.AWSECS), "runner_configuration.job.secrets={A: 'arn:aws:ssm:eu-west-1:123456789012:parameter/a'}"), launchconfig.Environment{}, "FAIRLEAD_ECS_IMAGE"},
		"a file as a secret of a task":                    {append(installed(runnerspec.Local), "runner_configuration.job.secrets={A: /a}"), launchconfig.Environment{Executor: "ecs"}, "Secrets Manager"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := launchconfig.Of(read(t, tc.settings).Runner, tc.env); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What an agent is told has the secrets masked, and is followed all the same; a
// field that is newer than the agent is not passed over.
func TestWhatIsToldIsRead(t *testing.T) {
	spec := read(t, append(installed(runnerspec.Docker), "runner_configuration.job.registry={username: u, password: hush}"))
	b, err := json.Marshal(spec.Masked().Runner)
	if err != nil || strings.Contains(string(b), "hush") {
		t.Fatalf("%s, %v", b, err)
	}
	r, err := runnerspec.DecodeRunner(b)
	if err != nil || r.(*runnerspec.DockerRunner).Job.Registry.Username != "u" {
		t.Errorf("%+v, %v", r, err)
	}
	newer := strings.Replace(string(b), `"type"`, `"sandbox":"gvisor","type"`, 1)
	if _, err := runnerspec.DecodeRunner([]byte(newer)); err == nil || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("got %v", err)
	}
}
