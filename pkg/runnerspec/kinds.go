package runnerspec

import (
	"cmp"
	"slices"
	"time"
)

// Kind is the runner kind: it sets where a runner starts its jobs.
type Kind string

// The kinds of runners.
const (
	AWSECS     Kind = "aws-ecs"    // tasks of Amazon ECS, on Fargate or EC2
	AWSEKS     Kind = "aws-eks"    // Kubernetes Jobs on Amazon EKS
	AzureAKS   Kind = "azure-aks"  // Kubernetes Jobs on Azure Kubernetes Service
	GCPGKE     Kind = "gcp-gke"    // Kubernetes Jobs on Google Kubernetes Engine
	Kubernetes Kind = "kubernetes" // Kubernetes Jobs on any other cluster
	Docker     Kind = "docker"     // containers of a Docker Engine
	Local      Kind = "local"      // processes next to the agent
)

// The executors.
const (
	ExecutorECS        = "ecs"
	ExecutorKubernetes = "kubernetes"
	ExecutorDocker     = "docker"
	ExecutorProcess    = "process"
)

// kindRow is what a kind decides.
type kindRow struct {
	kind     Kind
	executor string               // starts the steps
	images   bool                 // its jobs can run in an image of their own
	empty    func() Configuration // the type of its configuration
	// startTimeout is the default start timeout; 0: the control plane's default. Most kinds pull an
	// image, and perhaps start a machine, before a job starts.
	startTimeout time.Duration
	// stopGrace is the default of stop_grace; 0: the control plane's default.
	stopGrace time.Duration
	secret    secretReference // to what job.secrets refers
}

// ecsStopGrace is the default of stop_grace of kind aws-ecs. Operations on RDS, EKS or CloudFront
// take several minutes, and a tool can save its state only when the current one ends.
const ecsStopGrace = 10 * time.Minute

// secretReference is a form of the values of job.secrets.
type secretReference struct {
	pattern, wants string
	file           bool // it is a file on the agent's machine, which the agent reads
}

// kinds returns a row for each kind, in the order of the documentation.
func kinds() []kindRow {
	onAWS := secretReference{pattern: `^arn:aws[a-z-]*:(secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:\S+|ssm:[a-z0-9-]+:[0-9]{12}:parameter/\S+)$`, wants: "the ARN of a Secrets Manager secret or an SSM parameter"}
	inCluster := secretReference{pattern: `^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9._-]+$`, wants: "name/key of a Kubernetes Secret"}
	file := secretReference{pattern: `^/[^\x00\n]+$`, wants: "the absolute path of a file", file: true}
	return []kindRow{
		{AWSECS, ExecutorECS, true, func() Configuration { return &ECSRunner{} }, 5 * time.Minute, ecsStopGrace, onAWS},
		{AWSEKS, ExecutorKubernetes, true, func() Configuration { return &EKSRunner{} }, 5 * time.Minute, 0, inCluster},
		{AzureAKS, ExecutorKubernetes, true, func() Configuration { return &AKSRunner{} }, 5 * time.Minute, 0, inCluster},
		{GCPGKE, ExecutorKubernetes, true, func() Configuration { return &GKERunner{} }, 5 * time.Minute, 0, inCluster},
		{Kubernetes, ExecutorKubernetes, true, func() Configuration { return &KubernetesRunner{} }, 5 * time.Minute, 0, inCluster},
		{Docker, ExecutorDocker, true, func() Configuration { return &DockerRunner{} }, 5 * time.Minute, 0, file},
		{Local, ExecutorProcess, false, func() Configuration { return &LocalRunner{} }, 0, 0, file},
	}
}

// row returns the row of a kind. ok is false for an unknown kind.
func (k Kind) row() (row kindRow, ok bool) {
	i := slices.IndexFunc(kinds(), func(r kindRow) bool { return r.kind == k })
	if i < 0 {
		return kindRow{}, false
	}
	return kinds()[i], true
}

// Kinds returns the kinds of runners, in the order of the documentation.
func Kinds() []Kind {
	var all []Kind
	for _, r := range kinds() {
		all = append(all, r.kind)
	}
	return all
}

// Executor returns the executor of the kind's runners.
func (k Kind) Executor() string {
	row, _ := k.row()
	return cmp.Or(row.executor, ExecutorProcess)
}

// OwnImages reports whether the kind's runners can start a job in an image of its own. A single runner may still refuse it.
func (k Kind) OwnImages() bool {
	row, _ := k.row()
	return row.images
}

// SecretsAreFiles reports whether job.secrets of the kind names files on the agent's machine.
func (k Kind) SecretsAreFiles() bool {
	row, _ := k.row()
	return row.secret.file
}

// Configuration is the runner_configuration of one kind: a pointer to one of the types below.
type Configuration interface {
	Kind() Kind
	common() *Common
	job() *JobCommon
	direct() bool
	check(c *checker)
}

// newConfiguration returns an empty configuration of the kind, or nil for an unknown kind.
func newConfiguration(k Kind) Configuration {
	if row, ok := k.row(); ok {
		return row.empty()
	}
	return nil
}

// kindAliases maps the kind names of other products to Fairlead's.
func kindAliases() map[string]string {
	return map[string]string{
		"ecs": string(AWSECS), "serverless-ecs": string(AWSECS), "fargate": string(AWSECS),
		"eks": string(AWSEKS), "kubernetes-eks": string(AWSEKS),
		"aks": string(AzureAKS), "kubernetes-aks": string(AzureAKS),
		"gke": string(GCPGKE), "kubernetes-gke": string(GCPGKE),
		"k8s": string(Kubernetes), "kubernetes-agent": string(Kubernetes),
		"process": string(Local),
	}
}

// Common holds the fields that the configurations of all kinds have.
type Common struct {
	Type        Kind   `json:"type" must:"true" doc:"The kind of the runner. It cannot be changed later."`
	Endpoint    string `json:"endpoint,omitempty" check:"url" alias:"api_url url service_discovery_host" doc:"URL at which jobs reach the control plane, unless job.endpoint sets another. If absent: the agent's URL, which comes from the agent's environment."`
	Concurrency int    `json:"concurrency,omitempty" check:"concurrency" alias:"max_concurrency parallelism" doc:"Maximum number of concurrent jobs, 1 to 1000, over all agents of the runner. If absent: as many as each agent's machine can hold."`
	WholeRoles  bool   `json:"whole_roles,omitempty" doc:"Whether an apply of a module has the whole role of its operation in AWS. If absent: a session policy narrows the role to the services of the approved changes, except for changes of types that the runner does not know. A customer's policy with whole_role overrides it."`
	Builds      bool   `json:"builds,omitempty" only:"control plane" alias:"build builder" doc:"Whether the runner builds components of the org's apps, such as those whose source is in a git repository."`
	Version     string `json:"version,omitempty" check:"version" only:"control plane" doc:"Version that its agents must run, such as v1.2.3. If absent: the version of the channel, or any."`
	Channel     string `json:"channel,omitempty" check:"name" only:"control plane" doc:"Update channel, such as stable. The operator of the control plane sets its version. Cannot be combined with version."`
}

func (c *Common) common() *Common { return c }

func (c *Common) direct() bool { return false }

// Kind is the type.
func (c *Common) Kind() Kind { return c.Type }

// AWSAuth is the role that an agent next to the control plane assumes in a customer's AWS account.
type AWSAuth struct {
	RoleARN     string `json:"role_arn" must:"true" check:"rolearn" doc:"Role to assume."`
	ExternalID  string `json:"external_id,omitempty" doc:"External ID that the role's trust policy requires."`
	SessionName string `json:"session_name,omitempty" doc:"Name of the session in CloudTrail. If absent: the org and the runner."`
	STSRegion   string `json:"sts_region,omitempty" check:"region" doc:"Region of the STS endpoint. If absent: the runner's region."`
}

// JobCommon holds the settings of jobs that all kinds have.
type JobCommon struct {
	Endpoint     string            `json:"endpoint,omitempty" check:"url" alias:"api_url" doc:"URL at which jobs reach the control plane, if it differs from the agent's."`
	Environment  map[string]string `json:"environment,omitempty" check:"environment" only:"control plane" alias:"env environment_variables variables" doc:"Environment variables of jobs. Names that begin with FAIRLEAD_ are reserved. Do not put secrets here: the values are shown."`
	Secrets      map[string]string `json:"secrets,omitempty" check:"environment" doc:"Environment variables whose values are stored elsewhere. Each value is a reference: the ARN of a Secrets Manager secret or SSM parameter (aws-ecs), name/key of a Kubernetes Secret, or the absolute path of a file (docker, local)."`
	Proxy        *Proxy            `json:"proxy,omitempty" doc:"Proxy of jobs. Its variables are set in upper and lower case, because tools differ."`
	Labels       map[string]string `json:"labels,omitempty" check:"labels" alias:"tags" doc:"Labels of pods and containers, or tags of tasks. Not for local, because a process has no labels."`
	Timeout      Duration          `json:"timeout,omitzero" only:"control plane" alias:"max_duration" doc:"Longest time of one plan, apply or destroy; then the tool is interrupted. If absent: 30m for a plan, 2h for an apply or destroy."`
	NoOutput     Duration          `json:"no_output_timeout,omitzero" only:"control plane" doc:"Longest time without a log line; then the tool is interrupted. If absent: 10m."`
	StartTimeout Duration          `json:"start_timeout,omitzero" doc:"Longest time from the launch of a job until its first report. If absent: 5m; for local the control plane's default of 20s."`
	StopGrace    Duration          `json:"stop_grace,omitzero" alias:"grace_period termination_grace_period" doc:"Time that an interrupted tool has to save its state. If absent: 10m for aws-ecs, else 2m. If ECS stops a task itself, a tool on Fargate has at most 2m."`
}

// Proxy is the proxy of jobs.
type Proxy struct {
	HTTP  string `json:"http_proxy,omitempty" check:"proxy" alias:"http" doc:"Proxy of http requests. If its URL has a password, set HTTP_PROXY in secrets instead."`
	HTTPS string `json:"https_proxy,omitempty" check:"proxy" alias:"https" doc:"Proxy of https requests. If its URL has a password, set HTTPS_PROXY in secrets instead."`
	No    string `json:"no_proxy,omitempty" alias:"no" doc:"Hosts that are reached without the proxy, separated by commas."`
}

// ECSRunner is a runner of kind aws-ecs.
type ECSRunner struct {
	Common
	Auth *AWSAuth `json:"auth,omitempty" only:"control plane" doc:"Role with which an agent next to the control plane starts tasks. If absent: the agent runs in the account, under its task's role."`
	Job  ECSJob   `json:"job,omitzero" doc:"The tasks."`
}

func (r *ECSRunner) job() *JobCommon { return &r.Job.JobCommon }

func (r *ECSRunner) direct() bool { return r.Auth != nil }

// ECSJob sets how a job runs as an ECS task.
type ECSJob struct {
	JobCommon
	Region           string            `json:"region,omitempty" check:"region" doc:"AWS region of the cluster. If absent: the agent's own. Required if auth is set."`
	Cluster          string            `json:"cluster,omitempty" check:"nonempty" doc:"Name or ARN of the cluster. If absent: the one in the agent's file. Required if auth is set."`
	Subnets          []string          `json:"subnets,omitempty" check:"subnets" alias:"subnet_ids" doc:"1 to 16 subnets of one VPC. If absent: those in the agent's file. Required if auth is set."`
	SecurityGroups   []string          `json:"security_groups,omitempty" check:"securitygroups" alias:"security_group_ids" doc:"Up to 5 security groups. If absent: the VPC's default."`
	PublicIP         bool              `json:"public_ip,omitempty" alias:"is_public_ip_enabled assign_public_ip" doc:"Whether tasks get a public IP address; required in a subnet without NAT."`
	LaunchType       string            `json:"launch_type,omitempty" check:"launchtype" doc:"fargate, fargate-spot or ec2. If absent: fargate."`
	TaskDefinition   string            `json:"task_definition,omitempty" check:"nonempty" doc:"ARN or family of your own task definition. Its container for the job must have the name step. If absent: the agent creates one from the fields here if there is an image; otherwise it uses the one in the agent's file."`
	TaskRoleARN      string            `json:"task_role_arn,omitempty" check:"rolearn" alias:"task_role" doc:"Role of the job. If absent: the role of the job's operation, from the runner's stack."`
	ExecutionRoleARN string            `json:"execution_role_arn,omitempty" check:"rolearn" alias:"execution_role" doc:"Role that pulls the image and reads the secrets. Required without task_definition, if auth or image is set."`
	ImageDefinitions map[string]string `json:"image_definitions,omitempty" check:"imagedefinition" doc:"Task definitions of images in which scripts and actions may run: the ARN or family of one for each image by digest, such as registry.example.com/acme/tools@sha256:…. Other images are refused. In a customer's stack, the parameter ScriptImages makes them."`
	Image            string            `json:"image,omitempty" check:"image" doc:"Image of the runner, by digest. If absent: the image in the agent's file."`
	PullSecret       string            `json:"pull_secret,omitempty" check:"secretarn" alias:"repository_credentials" doc:"ARN of the Secrets Manager secret with the registry's credentials."`
	CPU              CPU               `json:"cpu,omitzero" doc:"CPUs. If absent: 1."`
	Memory           Size              `json:"memory,omitzero" doc:"Memory. If absent: 2Gi. Fargate supports only certain amounts with each number of CPUs."`
	Disk             Size              `json:"disk,omitzero" alias:"ephemeral_storage" doc:"Disk space. If absent: 20Gi. On Fargate 21Gi to 200Gi."`
	WarmTasks        int               `json:"warm_tasks,omitempty" check:"warmtasks" doc:"Number of tasks that each agent keeps started for the first jobs of deployments, 1 to 50. They cost money while they wait. If absent: FAIRLEAD_WARM_TASKS of the agent, which is 0 by default."`
	LogGroup         string            `json:"log_group,omitempty" doc:"CloudWatch log group of the tasks. If absent: the log group of the runner's stack."`
	LogPrefix        string            `json:"log_prefix,omitempty" check:"nonempty" only:"agent" doc:"Prefix of the log streams in the task definition. If absent: step."`
	Data             string            `json:"data,omitempty" check:"abspath" only:"agent" doc:"Working folder of jobs on a task's disk. If absent: /var/lib/fairlead-runner."`
	PassEnv          []string          `json:"pass_env,omitzero" only:"agent" doc:"Names of variables that ECS or the task definition sets in a task's container and that are passed to tools, such as those for the task's role. If absent: AWS_REGION, AWS_DEFAULT_REGION, AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, ECS_CONTAINER_METADATA_URI_V4."`
}

// KubernetesJob sets how a job runs as a Kubernetes Job.
type KubernetesJob struct {
	JobCommon
	Namespace       string            `json:"namespace,omitempty" check:"dns" doc:"Namespace of jobs. If absent: the agent's own namespace. Required if cluster is set."`
	ServiceAccount  string            `json:"service_account,omitempty" check:"dns" alias:"service_account_name" doc:"Service account of jobs whose role has none in service_accounts, and of jobs of the runner itself, such as its check. If absent: the one that was installed with the agent. Required if cluster is set."`
	ServiceAccounts RoleAccounts      `json:"service_accounts,omitzero" doc:"Service accounts of jobs by the role of their operation. If absent: service_account, for all jobs."`
	Image           string            `json:"image,omitempty" check:"image" doc:"Image of the runner, by digest. If absent: the image in the agent's file."`
	ImagePullPolicy string            `json:"image_pull_policy,omitempty" check:"pullpolicy" doc:"Always, IfNotPresent or Never."`
	PullSecrets     []string          `json:"pull_secrets,omitempty" check:"dns" alias:"image_pull_secrets" doc:"Names of Secrets in the namespace with credentials for registries."`
	CPURequest      CPU               `json:"cpu_request,omitzero" doc:"CPUs that Kubernetes reserves for a job."`
	CPULimit        CPU               `json:"cpu_limit,omitzero" alias:"cpu" doc:"CPUs that a job cannot exceed."`
	MemoryRequest   Size              `json:"memory_request,omitzero" doc:"Memory that Kubernetes reserves for a job. If absent: 512Mi."`
	MemoryLimit     Size              `json:"memory_limit,omitzero" alias:"memory" doc:"Memory limit; a job that exceeds it is killed."`
	Disk            Size              `json:"disk,omitzero" alias:"ephemeral_storage" doc:"Disk space that a job may use."`
	NodeSelector    map[string]string `json:"node_selector,omitempty" doc:"Labels of the nodes on which jobs run."`
	PodTemplate     Object            `json:"pod_template,omitempty" check:"podtemplate" doc:"Overlay on the pod of a job, applied as a strategic merge patch of Kubernetes. The only container has the name step; another name is an error. The overlay cannot change the namespace, the service account and reserved variables."`
	Kubeconfig      string            `json:"kubeconfig,omitempty" check:"abspath" only:"agent" doc:"Path of a kubeconfig file on the agent's machine. If absent: the service account of the agent's pod."`
	Images          []string          `json:"images,omitempty" check:"permittedimage" only:"agent" doc:"Images in which scripts and actions may run, by name without a digest: registry.example.com/tools, or registry.example.com/acme/* for all below. If absent: every image, always by digest."`
	Data            string            `json:"data,omitempty" check:"abspath" only:"agent" doc:"Working folder of jobs on a pod's disk. If absent: /var/lib/fairlead-runner."`
	KeepFor         Duration          `json:"keep_for,omitzero" only:"agent" doc:"How long the cluster keeps a finished job that the agent has not deleted. If absent: 1h."`
	PassEnv         []string          `json:"pass_env,omitzero" only:"agent" doc:"Names of variables that the cluster or its cloud sets in a pod and that are passed to tools, such as those for the job's service account. If absent: the variables of the API server's address, of AWS IAM roles for service accounts, of EKS Pod Identity, and of Azure workload identity."`
}

// RoleAccounts are the service accounts of the roles of operations. The role without an account uses the account of all jobs.
type RoleAccounts struct {
	ReadOnly    string `json:"read_only,omitempty" check:"dns" doc:"Service account of plans. If absent: service_account."`
	Deploy      string `json:"deploy,omitempty" check:"dns" doc:"Service account of applies, except those of modules. If absent: service_account."`
	Provision   string `json:"provision,omitempty" check:"dns" doc:"Service account of applies of modules. If absent: service_account."`
	Deprovision string `json:"deprovision,omitempty" check:"dns" doc:"Service account of destroys. If absent: service_account."`
}

// ClusterRunner is a runner whose jobs are Kubernetes Jobs. C sets how an agent next to the control plane reaches the
// cluster.
type ClusterRunner[C any] struct {
	Common
	Cluster *C            `json:"cluster,omitempty" only:"control plane" doc:"How an agent next to the control plane reaches the cluster. If absent: the agent runs in the cluster."`
	Job     KubernetesJob `json:"job,omitzero" doc:"The jobs."`
}

func (r *ClusterRunner[C]) job() *JobCommon { return &r.Job.JobCommon }

func (r *ClusterRunner[C]) direct() bool { return r.Cluster != nil }

// The runners of the kinds kubernetes, aws-eks, azure-aks and gcp-gke.
type (
	KubernetesRunner = ClusterRunner[KubernetesCluster]
	EKSRunner        = ClusterRunner[EKSCluster]
	AKSRunner        = ClusterRunner[AKSCluster]
	GKERunner        = ClusterRunner[GKECluster]
)

// KubernetesCluster is a cluster and how to reach it.
type KubernetesCluster struct {
	Server                   string         `json:"server" must:"true" check:"https" doc:"URL of the API server."`
	CertificateAuthorityData string         `json:"certificate_authority_data,omitempty" check:"base64" doc:"Certificate authority of the server, PEM in base64. If absent: those that the agent's machine trusts."`
	ProxyURL                 string         `json:"proxy_url,omitempty" check:"proxy" doc:"Proxy for requests to the API server."`
	Auth                     KubernetesAuth `json:"auth" must:"true" doc:"Either a client certificate with its key, or a token."`
}

// KubernetesAuth is a client certificate or a token.
type KubernetesAuth struct {
	ClientCertificateData string `json:"client_certificate_data,omitempty" check:"base64" doc:"Certificate, PEM in base64."`
	ClientKeyData         Secret `json:"client_key_data,omitempty" check:"base64" doc:"Key of the certificate, PEM in base64. Secret."`
	ServiceAccountToken   Secret `json:"service_account_token,omitempty" alias:"token" doc:"Token of a service account. Secret."`
}

// EKSCluster is an EKS cluster and how to reach it.
type EKSCluster struct {
	Name     string  `json:"name" must:"true" check:"nonempty" alias:"eks_cluster cluster_name" doc:"Name of the cluster."`
	Region   string  `json:"region" must:"true" check:"region" doc:"AWS region of the cluster."`
	ProxyURL string  `json:"proxy_url,omitempty" check:"proxy" doc:"Proxy for requests to the API server."`
	Auth     AWSAuth `json:"auth" must:"true" doc:"Role to assume; it needs an access entry of the cluster."`
}

// AKSCluster is an AKS cluster and how to reach it.
type AKSCluster struct {
	Name           string    `json:"name" must:"true" check:"nonempty" doc:"Name of the cluster."`
	ResourceGroup  string    `json:"resource_group" must:"true" check:"nonempty" doc:"Resource group of the cluster."`
	SubscriptionID string    `json:"subscription_id" must:"true" check:"uuid" doc:"Subscription of the cluster."`
	ProxyURL       string    `json:"proxy_url,omitempty" check:"proxy" doc:"Proxy for requests to the API server."`
	Auth           AzureAuth `json:"auth" must:"true" doc:"Application with a federated credential for the control plane."`
}

// AzureAuth is an application of Microsoft Entra.
type AzureAuth struct {
	TenantID string `json:"tenant_id" must:"true" check:"uuid" doc:"Tenant of the application."`
	ClientID string `json:"client_id" must:"true" check:"uuid" doc:"Client ID of the application."`
}

// GKECluster is a GKE cluster and how to reach it.
type GKECluster struct {
	Name       string  `json:"name" must:"true" check:"nonempty" doc:"Name of the cluster."`
	ProjectID  string  `json:"project_id" must:"true" check:"nonempty" doc:"Project of the cluster."`
	Location   string  `json:"location" must:"true" check:"nonempty" alias:"region zone" doc:"Region or zone of the cluster."`
	InternalIP bool    `json:"internal_ip,omitempty" doc:"Whether the agent uses the private address of the API server."`
	ProxyURL   string  `json:"proxy_url,omitempty" check:"proxy" doc:"Proxy for requests to the API server."`
	Auth       GCPAuth `json:"auth" must:"true" doc:"Workload identity federation."`
}

// GCPAuth is a workload identity provider and the service account to impersonate.
type GCPAuth struct {
	Audience       string `json:"gcp_audience" must:"true" check:"gcpaudience" alias:"audience" doc:"Full name of the workload identity provider: //iam.googleapis.com/projects/…"`
	ServiceAccount string `json:"gcp_service_account" must:"true" check:"gcpaccount" alias:"service_account" doc:"E-mail address of the service account."`
}

// DockerRunner is a runner of kind docker.
type DockerRunner struct {
	Common
	Host string    `json:"host,omitempty" check:"dockerhost" alias:"docker_host" doc:"Address of the Docker Engine. If absent: unix:///var/run/docker.sock."`
	Job  DockerJob `json:"job,omitzero" doc:"The containers."`
}

func (r *DockerRunner) job() *JobCommon { return &r.Job.JobCommon }

// DockerJob sets how a job runs as a container.
type DockerJob struct {
	JobCommon
	Image           string    `json:"image,omitempty" check:"dockerimage" doc:"Image of the runner, by digest, or by the ID of an image on the machine (sha256:…). If absent: the image in the agent's file."`
	ImagePullPolicy string    `json:"image_pull_policy,omitempty" check:"pullpolicy" alias:"local_image" doc:"Always, IfNotPresent or Never. Use Never for an image that exists only on the machine."`
	Registry        *Registry `json:"registry,omitempty" doc:"Credentials of the image's registry."`
	CPULimit        CPU       `json:"cpu_limit,omitzero" alias:"cpu" doc:"CPUs that a job cannot exceed."`
	MemoryLimit     Size      `json:"memory_limit,omitzero" alias:"memory" doc:"Memory limit; a job that exceeds it is killed."`
	Volumes         []string  `json:"volumes,omitempty" check:"volume" alias:"bind_path binds" doc:"Folders of the machine to mount in the container: /host:/container, with :ro at the end for read-only."`
	ExtraHosts      []string  `json:"extra_hosts,omitempty" check:"extrahost" doc:"Host names and the addresses to which containers resolve them: name:address."`
	Network         string    `json:"network,omitempty" check:"nonempty" doc:"Network of the containers. If absent: the engine's default."`
	PIDsLimit       int       `json:"pids_limit,omitempty" check:"pids" only:"agent" doc:"Maximum number of processes and threads of a job; -1 for no limit. If absent: 1024."`
	Images          []string  `json:"images,omitempty" check:"permittedimage" only:"agent" doc:"Images in which scripts and actions may run, by name without a digest: registry.example.com/tools, or registry.example.com/acme/* for all below. If absent: every image, always by digest."`
	HostData        string    `json:"host_data,omitempty" check:"abspath" only:"agent" doc:"Path of the agent's data folder on the engine's machine, for an agent that runs in a container itself. If absent: the agent's own path."`
}

// Registry holds the credentials of an image registry.
type Registry struct {
	Username     string `json:"username" must:"true" check:"nonempty" alias:"registry_username" doc:"User name."`
	Password     Secret `json:"password,omitempty" must:"true" only:"control plane" alias:"registry_password" doc:"Password. Secret. The control plane does not send it to agents: the agent reads it from the file that password_file in its own file names."`
	PasswordFile string `json:"password_file,omitempty" check:"abspath" only:"agent" doc:"File on the agent's machine that holds the password."`
}

// LocalRunner is a runner of kind local.
type LocalRunner struct {
	Common
	Job LocalJob `json:"job,omitzero" doc:"The processes."`
}

func (r *LocalRunner) job() *JobCommon { return &r.Job.JobCommon }

// LocalJob sets how a job runs as a process of the agent.
type LocalJob struct {
	JobCommon
	Folder string `json:"folder,omitempty" check:"abspath" alias:"work_dir directory" doc:"Folder on the agent's machine for the working folders of jobs. If absent: the agent's data folder."`
}
