package config

import "time"

// Runner is the environment of `runner agent`. A step reads no environment variable
// except its launch token: the agent passes only paths to the step, in the step's own
// folder.
type Runner struct {
	URL  string `env:"FAIRLEAD_URL" flag:"url" doc:"URL of the control plane; required until the runner has enrolled"`
	Data string `env:"FAIRLEAD_RUNNER_DATA" envDefault:"/var/lib/fairlead-runner" flag:"data" doc:"folder for the runner's key, its steps, and states in local storage; only one agent can use it at a time"`

	CAFile         string `env:"FAIRLEAD_CA_FILE" flag:"ca-file" doc:"file of CA certificates in PEM for the control plane, in addition to those that the machine trusts; tools with state in http storage trust only this file"`
	AllowPlainHTTP bool   `env:"FAIRLEAD_ALLOW_PLAIN_HTTP" flag:"allow-plain-http" doc:"whether the agent may call a control plane on another machine without TLS: an attacker on the network can then read and change tokens, variables and states"`

	Identity    string   `env:"FAIRLEAD_IDENTITY" envDefault:"key" flag:"identity" doc:"how the runner proves its identity: key, a key pair that it enrols with an enrolment token; aws-iam, the AWS role of the process; oidc, a token of its platform, with further variables"`
	RunnerID    string   `env:"FAIRLEAD_RUNNER_ID" flag:"runner-id" doc:"ID of the runner, for aws-iam and oidc; with a key, the enrolment returns it"`
	TrustedKeys []string `env:"FAIRLEAD_TRUSTED_KEYS" flag:"trusted-keys" doc:"public keys, in base64, separated by commas, that verify the signatures of job specs, for aws-iam and oidc; with a key, the enrolment returns them"`

	EnrolmentToken     string `env:"FAIRLEAD_ENROLMENT_TOKEN,unset" doc:"single-use token that enrols this runner; ignored after the enrolment"`
	EnrolmentTokenFile string `env:"FAIRLEAD_ENROLMENT_TOKEN_FILE" flag:"enrolment-token-file" doc:"file that holds the enrolment token"`

	Config string `env:"FAIRLEAD_AGENT_CONFIG" flag:"config" doc:"path of the agent's file, which configures how steps start on this machine, with the fields of a runner's configuration; if the value begins with a brace, it is the content itself; default: steps are processes next to the agent"`

	StatusAddress string `env:"FAIRLEAD_STATUS_ADDRESS" flag:"status-address" doc:"host:port at which the agent answers /healthz, /readyz and, for Prometheus, /metrics, without authentication; default: none, in the runner's image 127.0.0.1:9480"`

	Mode          string        `env:"FAIRLEAD_MODE" envDefault:"enabled" flag:"mode" doc:"the mode that the customer sets for this agent: enabled; paused: it starts no jobs; draining: it starts no jobs because the machine will be removed; disabled: it starts no jobs and interrupts running ones; see also fairlead-runner agent pause"`
	ModeParameter string        `env:"FAIRLEAD_MODE_PARAMETER" flag:"mode-parameter" doc:"name of an SSM parameter in the customer's AWS account with a mode as in FAIRLEAD_MODE, and after a colon a reason; the agent reads it every four seconds; the stricter mode applies, and until the agent has read the parameter once it starts no jobs"`
	LogLevel      string        `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" flag:"log-level" doc:"debug, info, warn or error"`
	Traces        string        `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of the OpenTelemetry collector that gets traces of the agent's requests, without /v1/traces; empty: no traces. The other standard OTEL_ variables apply too; the protocol is http/json"`
	MakeSeed      bool          `env:"FAIRLEAD_MAKE_INSTALL_KEY" flag:"make-install-key" doc:"whether the agent makes a seed of install keys in a new data folder, so that the control plane cannot read secrets; only if it is the only agent of its runner, because agents with different seeds cannot read each other's values; fairlead dev sets it"`
	ShareLog      bool          `env:"FAIRLEAD_SHARE_LOG" envDefault:"true" flag:"share-log" doc:"whether the agent sends the last 64 KiB of its own log when fairlead runner logs requests them"`
	DrainFor      time.Duration `env:"FAIRLEAD_DRAIN_FOR" envDefault:"0s" flag:"drain-for" doc:"longest wait for running steps after the first SIGTERM; then the agent interrupts them, or leaves them to the next agent if they are tasks of ECS or pods; 0s: no limit"`

	Tofu           string   `env:"FAIRLEAD_TOFU" flag:"tofu" doc:"path of OpenTofu or Terraform; default: tofu on PATH, otherwise terraform on PATH"`
	Programs       string   `env:"FAIRLEAD_PLUGINS" flag:"plugins" doc:"folder of the programs of component types whose plugin is a program that belongs to the runner; default: the folder plugins beside the program of a step"`
	PluginCache    string   `env:"FAIRLEAD_PLUGIN_CACHE" flag:"plugin-cache" doc:"folder that keeps providers between jobs; default: plugin-cache in the data folder"`
	ProviderMirror string   `env:"FAIRLEAD_PROVIDER_MIRROR" flag:"provider-mirror" doc:"where jobs keep the archives of providers for later jobs on other disks: s3://BUCKET/PREFIX, or the path of a folder that all steps can write to; a job uses an archive only if it has a hash of the module's lock file; not used if the configuration file of OpenTofu or Terraform has a provider_installation block"`
	CLIConfig      string   `env:"FAIRLEAD_TF_CLI_CONFIG_FILE" flag:"tf-cli-config-file" doc:"configuration file of OpenTofu or Terraform, for example with a provider mirror"`
	PassEnv        []string `env:"FAIRLEAD_PASS_ENV" flag:"pass-env" doc:"names of variables, separated by commas, that the agent passes from its own environment to steps and their tools; it passes no others"`

	WarmTasks int `env:"FAIRLEAD_WARM_TASKS" envDefault:"0" flag:"warm-tasks" doc:"number of tasks that wait for the first jobs of deployments, if the executor starts steps ahead and the runner's configuration does not set job.warm_tasks; each is replaced after 5 minutes"`

	Isolation      string   `env:"FAIRLEAD_ISOLATION" envDefault:"wanted" flag:"isolation" doc:"whether the process executor isolates a job's programs from the files and processes of the runner and of other jobs: wanted: if the machine has Landlock; required: without Landlock the agent does not start; off: never"`
	SharedProcess  string   `env:"FAIRLEAD_SHARED_PROCESS" flag:"shared-process" doc:"true or false, the default: whether the process executor may start jobs of several installs on this machine: they run as one user and reach what the reference of isolation lists; without it, the agent refuses jobs of a second install"`
	OwnerTokenFile string   `env:"FAIRLEAD_OWNER_TOKEN_FILE" flag:"owner-token-file" doc:"file with an API token of the control plane, only if control plane and runner belong to the same person, as with fairlead dev: with it the agent asks whether the install that it serves still exists, before it serves another one"`
	Readable       []string `env:"FAIRLEAD_READABLE" flag:"readable" doc:"files and folders, separated by commas, that isolated jobs may read and execute, in addition to the machine's programs and settings and the paths in the variables of FAIRLEAD_PASS_ENV; if such a folder contains the data folder, all except the data folder"`
	Writable       []string `env:"FAIRLEAD_WRITABLE" envDefault:"/tmp,/var/tmp" flag:"writable" doc:"files and folders, separated by commas, that isolated jobs may also change, in addition to their own; / permits everything that the agent itself may read and change, except private files"`
	Private        []string `env:"FAIRLEAD_PRIVATE" flag:"private" doc:"files and folders, separated by commas, that isolated jobs may never access, in addition to the runner's own; they take precedence over readable and writable folders"`
}

// DirectLaunch is the environment of `fairlead-direct`, the service that runs agents beside a
// serverless control plane. Its agents also read FAIRLEAD_AGENT_CONFIG, FAIRLEAD_CA_FILE and
// FAIRLEAD_ALLOW_PLAIN_HTTP of Runner.
type DirectLaunch struct {
	URL      string `env:"FAIRLEAD_URL,notEmpty" flag:"url" doc:"URL of the control plane"`
	Function string `env:"FAIRLEAD_DIRECT_FUNCTION,notEmpty" flag:"function" doc:"name or ARN of the control plane's function direct"`
	Image    string `env:"FAIRLEAD_RUNNER_IMAGE" flag:"runner-image" doc:"image of the runner, by digest, for runners whose configuration sets no image"`
	Data     string `env:"FAIRLEAD_RUNNER_DATA" envDefault:"/var/lib/fairlead-runner" flag:"data" doc:"folder for the agents' keys and records; it may be empty at each start"`
	LogLevel string `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" flag:"log-level" doc:"debug, info, warn or error"`
}

// InstallKey is the environment of `fairlead-runner install-key`.
type InstallKey struct {
	Data string `env:"FAIRLEAD_RUNNER_DATA" envDefault:"/var/lib/fairlead-runner" flag:"data" doc:"the agent's data folder"`
}

// RunnerMode is the environment of `runner agent pause` and of the other commands with
// which the customer sets the mode of an agent.
type RunnerMode struct {
	Data string `env:"FAIRLEAD_RUNNER_DATA" envDefault:"/var/lib/fairlead-runner" flag:"data" doc:"the agent's data folder"`
	Mode string `env:"FAIRLEAD_MODE" doc:"the mode with which the agent is started"`
}
