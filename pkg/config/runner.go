package config

import "time"

// Runner is the environment of `runner agent`. The agent gives a step nothing
// of it but paths, in the step's own folder: a step reads no environment
// besides its launch token.
type Runner struct {
	URL  string `env:"FAIRLEAD_URL" flag:"url" doc:"URL of the control plane; needed until the runner has enrolled"`
	Data string `env:"FAIRLEAD_RUNNER_DATA" envDefault:"/var/lib/fairlead-runner" flag:"data" doc:"folder for the runner's key, its steps, and state kept in local storage; one agent uses it at a time"`

	CAFile         string `env:"FAIRLEAD_CA_FILE" flag:"ca-file" doc:"file of certificates in PEM that the control plane's may be signed by, beside those that the machine trusts; tools with state in http storage trust this file alone"`
	AllowPlainHTTP bool   `env:"FAIRLEAD_ALLOW_PLAIN_HTTP" flag:"allow-plain-http" doc:"whether the control plane may be called without TLS on another machine: tokens, variables and states can be read and changed on the way"`

	Identity    string   `env:"FAIRLEAD_IDENTITY" envDefault:"key" flag:"identity" doc:"how the runner proves who it is: key, a key pair that an enrolment token makes known; aws-iam, the AWS role that the process has, or oidc, a token of its platform, which has variables of its own"`
	RunnerID    string   `env:"FAIRLEAD_RUNNER_ID" flag:"runner-id" doc:"id of the runner, for aws-iam and oidc; a key learns it by enrolling"`
	TrustedKeys []string `env:"FAIRLEAD_TRUSTED_KEYS" flag:"trusted-keys" doc:"public keys, in base64, separated by commas, that job specs are verified with, for aws-iam and oidc; a key learns them by enrolling"`

	EnrolmentToken     string `env:"FAIRLEAD_ENROLMENT_TOKEN,unset" doc:"single-use token that enrols this runner; ignored once it has enrolled"`
	EnrolmentTokenFile string `env:"FAIRLEAD_ENROLMENT_TOKEN_FILE" flag:"enrolment-token-file" doc:"file that holds the enrolment token"`

	Config string `env:"FAIRLEAD_AGENT_CONFIG" flag:"config" doc:"the agent's file: how steps are started on this machine, with the fields of a runner's configuration; or, if it begins with a brace, what would be in it; default: processes beside the agent"`

	StatusAddress string `env:"FAIRLEAD_STATUS_ADDRESS" flag:"status-address" doc:"host:port at which the agent answers /healthz, /readyz and, for Prometheus, /metrics to whoever asks, such as 127.0.0.1:9480; default: none, and in the runner's image that one"`

	Mode     string        `env:"FAIRLEAD_MODE" envDefault:"enabled" flag:"mode" doc:"the mode that the customer sets for this agent: enabled; paused, it begins nothing; draining, the same because the machine is to go, or disabled, what runs is interrupted as well; see also fairlead-runner agent pause"`
	LogLevel string        `env:"FAIRLEAD_LOG_LEVEL" envDefault:"info" flag:"log-level" doc:"debug, info, warn or error"`
	ShareLog bool          `env:"FAIRLEAD_SHARE_LOG" envDefault:"true" flag:"share-log" doc:"whether the last 64 KiB of the agent's own log are sent when they are asked for with fairlead runner logs"`
	DrainFor time.Duration `env:"FAIRLEAD_DRAIN_FOR" envDefault:"0s" flag:"drain-for" doc:"longest wait for running steps after the first SIGTERM, after which they are interrupted; 0s: until they end"`

	Tofu        string   `env:"FAIRLEAD_TOFU" flag:"tofu" doc:"OpenTofu or Terraform; default: tofu, else terraform, on PATH"`
	PluginCache string   `env:"FAIRLEAD_PLUGIN_CACHE" flag:"plugin-cache" doc:"folder in which providers are kept between jobs; default: plugin-cache in the data folder"`
	CLIConfig   string   `env:"FAIRLEAD_TF_CLI_CONFIG_FILE" flag:"tf-cli-config-file" doc:"the tool's own configuration file, such as one that names a provider mirror"`
	PassEnv     []string `env:"FAIRLEAD_PASS_ENV" flag:"pass-env" doc:"names of variables, separated by commas, that steps and their tools get from the agent's environment; nothing else is passed on"`

	Isolation string   `env:"FAIRLEAD_ISOLATION" envDefault:"wanted" flag:"isolation" doc:"whether what jobs start beside the agent, by the executor process, is kept from the runner's files and processes and from other jobs': wanted, where the machine has Landlock; required, or the agent does not start; off"`
	Readable  []string `env:"FAIRLEAD_READABLE" flag:"readable" doc:"files and folders, separated by commas, that jobs which are kept apart so may read and run, beside the machine's own programs and settings and what the variables of FAIRLEAD_PASS_ENV name; of a folder that the data folder is in, all but that"`
	Writable  []string `env:"FAIRLEAD_WRITABLE" envDefault:"/tmp,/var/tmp" flag:"writable" doc:"files and folders, separated by commas, that they may change, too, beside their own; / lets them change whatever the agent itself may, and read it but for what is private"`
	Private   []string `env:"FAIRLEAD_PRIVATE" flag:"private" doc:"files and folders, separated by commas, that they may not reach wherever they are, beside the runner's own"`
}

// RunnerMode is the environment of `runner agent pause` and the other commands
// by which the customer says whether an agent works.
type RunnerMode struct {
	Data string `env:"FAIRLEAD_RUNNER_DATA" envDefault:"/var/lib/fairlead-runner" flag:"data" doc:"the agent's data folder"`
	Mode string `env:"FAIRLEAD_MODE" doc:"what the agent is started with"`
}
