package config

import "time"

// The structs below are what the executors of a runner need to know, beside
// Runner; each is read only when that executor is used. What the runner's
// configuration says comes before it. None holds a secret: a registry's password
// is in a file.

// Docker is what the docker executor needs to know.
type Docker struct {
	Host         string   `env:"FAIRLEAD_DOCKER_HOST" envDefault:"unix:///var/run/docker.sock" doc:"address of the Docker Engine, which must be on the agent's machine, because steps see folders of it"`
	Image        string   `env:"FAIRLEAD_DOCKER_IMAGE" doc:"image of the runner, with the tools that steps use, by digest"`
	Pull         string   `env:"FAIRLEAD_DOCKER_PULL" envDefault:"IfNotPresent" doc:"when the image is pulled: Always, IfNotPresent or Never"`
	Username     string   `env:"FAIRLEAD_DOCKER_REGISTRY_USERNAME" doc:"user at the image's registry"`
	PasswordFile string   `env:"FAIRLEAD_DOCKER_REGISTRY_PASSWORD_FILE" doc:"file that holds the password at the image's registry"`
	CPU          MilliCPU `env:"FAIRLEAD_DOCKER_CPU" doc:"CPUs that a step cannot exceed, such as 2 or 500m; default: no limit"`
	Memory       Bytes    `env:"FAIRLEAD_DOCKER_MEMORY" doc:"memory at which a step is killed, such as 2Gi; default: no limit"`
	PIDs         int64    `env:"FAIRLEAD_DOCKER_PIDS" envDefault:"1024" doc:"most processes and threads of a step"`
	Network      string   `env:"FAIRLEAD_DOCKER_NETWORK" doc:"network of the containers; default: the engine's"`
	Volumes      []string `env:"FAIRLEAD_DOCKER_VOLUMES" doc:"folders of the machine in the container, separated by commas: /host:/container, with :ro behind it to read only"`
	ExtraHosts   []string `env:"FAIRLEAD_DOCKER_EXTRA_HOSTS" doc:"names that containers resolve to an address, separated by commas: name:address"`
	Labels       []string `env:"FAIRLEAD_DOCKER_LABELS" doc:"labels of the containers, separated by commas: name=value"`
	HostData     string   `env:"FAIRLEAD_DOCKER_HOST_DATA" doc:"the runner's data folder as the engine sees it, for an agent that runs in a container itself; default: as the agent sees it"`
}

// Kubernetes is what the kubernetes executor needs to know.
type Kubernetes struct {
	Kubeconfig      string        `env:"FAIRLEAD_KUBECONFIG" doc:"file by which the cluster is reached; default: the service account of the agent's pod"`
	Namespace       string        `env:"FAIRLEAD_KUBERNETES_NAMESPACE" doc:"namespace of the jobs; default: that of the agent's pod"`
	ServiceAccount  string        `env:"FAIRLEAD_KUBERNETES_SERVICE_ACCOUNT" doc:"service account of the jobs' pods"`
	Image           string        `env:"FAIRLEAD_KUBERNETES_IMAGE" doc:"image of the runner, with the tools that steps use, by digest"`
	Pull            string        `env:"FAIRLEAD_KUBERNETES_PULL" envDefault:"IfNotPresent" doc:"when the image is pulled: Always, IfNotPresent or Never"`
	PullSecrets     []string      `env:"FAIRLEAD_KUBERNETES_PULL_SECRETS" doc:"names, separated by commas, of Secrets with registries' credentials"`
	CPURequest      MilliCPU      `env:"FAIRLEAD_KUBERNETES_CPU_REQUEST" doc:"CPUs that are kept free for a job, such as 500m"`
	CPULimit        MilliCPU      `env:"FAIRLEAD_KUBERNETES_CPU_LIMIT" doc:"CPUs that a job cannot exceed"`
	MemoryRequest   Bytes         `env:"FAIRLEAD_KUBERNETES_MEMORY_REQUEST" envDefault:"512Mi" doc:"memory that is kept free for a job"`
	MemoryLimit     Bytes         `env:"FAIRLEAD_KUBERNETES_MEMORY_LIMIT" doc:"memory at which a job is killed; default: no limit"`
	Disk            Bytes         `env:"FAIRLEAD_KUBERNETES_DISK" doc:"disk that a job may fill; default: no limit"`
	NodeSelector    []string      `env:"FAIRLEAD_KUBERNETES_NODE_SELECTOR" doc:"labels of the nodes on which jobs run, separated by commas: name=value"`
	Labels          []string      `env:"FAIRLEAD_KUBERNETES_LABELS" doc:"labels of jobs and pods, separated by commas: name=value"`
	PassEnv         []string      `env:"FAIRLEAD_KUBERNETES_PASS_ENV" envDefault:"KUBERNETES_SERVICE_HOST,KUBERNETES_SERVICE_PORT,AWS_REGION,AWS_DEFAULT_REGION,AWS_STS_REGIONAL_ENDPOINTS,AWS_ROLE_ARN,AWS_WEB_IDENTITY_TOKEN_FILE,AWS_CONTAINER_CREDENTIALS_FULL_URI,AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE,AZURE_CLIENT_ID,AZURE_TENANT_ID,AZURE_FEDERATED_TOKEN_FILE,AZURE_AUTHORITY_HOST" doc:"names of variables, separated by commas, that the cluster or its cloud set in a job's pod and that tools get: who the job's service account is; nothing of the agent's is passed on by them"`
	PodTemplateFile string        `env:"FAIRLEAD_KUBERNETES_POD_TEMPLATE_FILE" doc:"file with an overlay on the pod of a job, YAML or JSON, by Kubernetes' strategic merge"`
	Data            string        `env:"FAIRLEAD_KUBERNETES_DATA" envDefault:"/var/lib/fairlead-runner" doc:"folder of a pod's disk in which steps work"`
	StartTimeout    time.Duration `env:"FAIRLEAD_KUBERNETES_START_TIMEOUT" envDefault:"5m" doc:"longest time until the container of a job runs"`
	StopGrace       time.Duration `env:"FAIRLEAD_KUBERNETES_STOP_GRACE" envDefault:"2m" doc:"time that a tool has to save its state when its job is interrupted"`
	KeepFor         time.Duration `env:"FAIRLEAD_KUBERNETES_KEEP_FOR" envDefault:"1h" doc:"how long the cluster keeps a finished job that its agent has not removed"`
}

// ECS is what the ecs executor needs to know.
type ECS struct {
	Region         string        `env:"FAIRLEAD_ECS_REGION" doc:"AWS region of the cluster; default: AWS_REGION"`
	Cluster        string        `env:"FAIRLEAD_ECS_CLUSTER" doc:"name or ARN of the cluster"`
	Subnets        []string      `env:"FAIRLEAD_ECS_SUBNETS" doc:"subnets of the tasks, separated by commas"`
	SecurityGroups []string      `env:"FAIRLEAD_ECS_SECURITY_GROUPS" doc:"security groups of the tasks, separated by commas; default: the VPC's"`
	PublicIP       bool          `env:"FAIRLEAD_ECS_PUBLIC_IP" envDefault:"false" doc:"whether tasks get a public address"`
	LaunchType     string        `env:"FAIRLEAD_ECS_LAUNCH_TYPE" envDefault:"fargate" doc:"fargate, fargate-spot or ec2"`
	TaskDefinition string        `env:"FAIRLEAD_ECS_TASK_DEFINITION" doc:"ARN or family of the task definition, whose container of the job is called step"`
	Image          string        `env:"FAIRLEAD_ECS_IMAGE" doc:"image of the runner, by digest, for task definitions that are made of a runner's configuration"`
	TaskRole       string        `env:"FAIRLEAD_ECS_TASK_ROLE" doc:"ARN of the role of the task; default: that of the task definition"`
	ExecutionRole  string        `env:"FAIRLEAD_ECS_EXECUTION_ROLE" doc:"ARN of the role that pulls the image; default: that of the task definition"`
	CPU            MilliCPU      `env:"FAIRLEAD_ECS_CPU" doc:"CPUs of a task; default: those of the task definition"`
	Memory         Bytes         `env:"FAIRLEAD_ECS_MEMORY" doc:"memory of a task; default: that of the task definition"`
	Disk           Bytes         `env:"FAIRLEAD_ECS_DISK" doc:"disk of a task, 21Gi to 200Gi on Fargate; default: that of the task definition"`
	Tags           []string      `env:"FAIRLEAD_ECS_TAGS" doc:"tags of the tasks, separated by commas: name=value"`
	LogGroup       string        `env:"FAIRLEAD_ECS_LOG_GROUP" doc:"CloudWatch log group to which the task definition sends what steps say; default: what a step has said is not read"`
	LogPrefix      string        `env:"FAIRLEAD_ECS_LOG_PREFIX" envDefault:"step" doc:"prefix of the log's streams, as the task definition has it"`
	PassEnv        []string      `env:"FAIRLEAD_ECS_PASS_ENV" envDefault:"AWS_REGION,AWS_DEFAULT_REGION,AWS_CONTAINER_CREDENTIALS_RELATIVE_URI,ECS_CONTAINER_METADATA_URI_V4" doc:"names of variables, separated by commas, that ECS sets in a task's container, or its task definition does, and that tools get: who the task's role is; nothing of the agent's is passed on by them"`
	StartTimeout   time.Duration `env:"FAIRLEAD_ECS_START_TIMEOUT" envDefault:"5m" doc:"longest time until the container of a task runs"`
	Data           string        `env:"FAIRLEAD_ECS_DATA" envDefault:"/var/lib/fairlead-runner" doc:"folder of a task's disk in which steps work"`
}
