// Package reach is the table of what a hostile tool tries to reach, and what it and the test that starts it send each other.
package reach

// Capability identifies a thing that a tool of a job may reach.
type Capability string

// What the tool tries. Table describes each.
const (
	ReadAgentKey      Capability = "read-agent-key"
	ReadInstallSeed   Capability = "read-install-seed"
	ReadPolicy        Capability = "read-policy"
	ReadLedger        Capability = "read-ledger"
	ReadAgentMemory   Capability = "read-agent-memory"
	ReadOwnStep       Capability = "read-own-step"
	ReadUserFile      Capability = "read-user-file"
	ReadOtherState    Capability = "read-other-state"
	ReadOtherPlan     Capability = "read-other-plan"
	ReadOtherWork     Capability = "read-other-work"
	ReadOtherEnviron  Capability = "read-other-environ"
	ReadOtherMemory   Capability = "read-other-memory"
	ReadOtherStep     Capability = "read-other-step"
	SeeOtherProcesses Capability = "see-other-processes"
	ReadOtherSecret   Capability = "read-other-secret"
	ReadOtherAccount  Capability = "read-other-account"
	UseOtherState     Capability = "use-other-state"
	WriteAgentFile    Capability = "write-agent-file"
	WritePolicy       Capability = "write-policy"
	WriteLedger       Capability = "write-ledger"
	WriteProvider     Capability = "write-provider"
	WriteToolFacts    Capability = "write-tool-facts"
	WriteArtifact     Capability = "write-artifact"
	WriteUserFile     Capability = "write-user-file"
	WriteSharedTmp    Capability = "write-shared-tmp"
	WriteOtherState   Capability = "write-other-state"
	WriteOtherWork    Capability = "write-other-work"
	SignalAgent       Capability = "signal-agent"
	SignalOwnStep     Capability = "signal-own-step"
	SignalOtherStep   Capability = "signal-other-step"
	SignalOtherTool   Capability = "signal-other-tool"
	TraceAgent        Capability = "trace-agent"
	TraceOwnStep      Capability = "trace-own-step"
	TraceOtherStep    Capability = "trace-other-step"
	TraceOtherTool    Capability = "trace-other-tool"
	ConnectPlane      Capability = "connect-control-plane"
	ConnectMetadata   Capability = "connect-metadata"
	ConnectAgent      Capability = "connect-agent"
	ConnectSocket     Capability = "connect-socket"
	ConnectOtherPort  Capability = "connect-other-port"
	ConnectOtherName  Capability = "connect-other-name"
	OutliveJob        Capability = "outlive-job"
)

// Row describes a capability.
type Row struct {
	Capability Capability
	Verb       string // the group in which the page shows it
	What       string // for a person; completes "a hostile tool can VERB WHAT"
	Other      bool   // of the job of another install that runs at the same time
	Traces     bool   // the kernel's Yama module refuses it to processes that are no ancestors, where it is on
}

// Table has every capability once.
func Table() []Row {
	return []Row{
		{ReadAgentKey, "read", "the agent's private key and its pinned keys", false, false},
		{ReadInstallSeed, "read", "the seed of the install keys, in the agent's data folder", false, false},
		{ReadPolicy, "read", "the customer's policy, where it is a file or a ConfigMap", false, false},
		{ReadLedger, "read", "the customer's ledger, where it is a folder of the agent's machine", false, false},
		{ReadAgentMemory, "read", "environment or memory of the agent", false, true},
		{ReadOwnStep, "read", "environment or memory of its own step, which has the lease", false, true},
		{ReadUserFile, "read", "a file of the agent's user that no setting names", false, false},
		{ReadOtherState, "read", "the state of another install, in `local` storage", false, false},
		{ReadOtherPlan, "read", "a saved plan of another install, in `local` storage", false, false},
		{ReadOtherWork, "read", "the working folder of the other job", true, false},
		{ReadOtherEnviron, "read", "the environment of the other job's tool: its inputs and credentials", true, false},
		{ReadOtherMemory, "read", "the memory of the other job's tool", true, true},
		{ReadOtherStep, "read", "environment or memory of the other job's step, which has its lease", true, true},
		{SeeOtherProcesses, "read", "that the other job's processes exist, and their arguments", true, false},
		{ReadOtherSecret, "read", "the Secret with the other job's launch token, with its own service account, if states are Secrets of this namespace", true, false},
		{ReadOtherAccount, "read", "the token of the service account of the other job's pod", true, false},
		{UseOtherState, "read", "the other job's state, with the password out of its environment", true, false},
		{WriteAgentFile, "write", "the agent's files, such as the pinned keys", false, false},
		{WritePolicy, "write", "the customer's policy, where it is a file or a ConfigMap", false, false},
		{WriteLedger, "write", "into the customer's ledger, where it is a folder of the agent's machine", false, false},
		{WriteProvider, "write", "providers that later jobs run", false, false},
		{WriteToolFacts, "write", "the cached facts about tools", false, false},
		{WriteArtifact, "write", "fetched artifacts, which each job compares with the digest in its spec", false, false},
		{WriteUserFile, "write", "into a folder of the agent's user that no setting names", false, false},
		{WriteSharedTmp, "write", "files of others in `/tmp`, if the agent's user may", false, false},
		{WriteOtherState, "write", "the state of another install, in `local` storage", false, false},
		{WriteOtherWork, "write", "into the working folder of the other job", true, false},
		{SignalAgent, "signal", "the agent", false, false},
		{SignalOwnStep, "signal", "its own step", false, false},
		{SignalOtherStep, "signal", "the other job's step", true, false},
		{SignalOtherTool, "signal", "the other job's tool", true, false},
		{TraceAgent, "trace", "the agent", false, true},
		{TraceOwnStep, "trace", "its own step", false, true},
		{TraceOtherStep, "trace", "the other job's step", true, true},
		{TraceOtherTool, "trace", "the other job's tool", true, true},
		{ConnectPlane, "connect to", "the control plane, as every tool can that has a network; it has no token for it", false, false},
		{ConnectMetadata, "connect to", "the metadata service of the machine at 169.254.169.254, if the network has it", false, false},
		{ConnectAgent, "connect to", "the agent's status address on the loopback interface", false, false},
		{ConnectSocket, "connect to", "a socket with a path that the agent's user may use, such as Docker's", false, false},
		{ConnectOtherPort, "connect to", "a port of the other job's tool on the loopback interface", true, false},
		{ConnectOtherName, "connect to", "a socket of the other job's tool with an abstract name", true, false},
		{OutliveJob, "outlive", "its job, as a process with a session of its own", false, false},
	}
}

// Targets is the file targets.json beside the tool: where things are. An attacker knows that of a release that anybody can install.
type Targets struct {
	Report   string `json:"report"`            // host:port to which the tool reports
	Nonce    string `json:"nonce"`             // is in the arguments of the victim of this test
	Data     string `json:"data"`              // the agent's data folder
	UserFile string `json:"user_file"`         // a file of the agent's user
	Policy   string `json:"policy"`            // the file of the customer's policy, as the step sees it; "": there is none
	Tmp      string `json:"tmp"`               // a file of the agent's user in /tmp
	Plane    string `json:"plane"`             // URL of the control plane
	Status   string `json:"status"`            // host:port of the agent's status
	Socket   string `json:"socket"`            // path of a socket
	API      string `json:"api,omitempty"`     // URL of the API server of the cluster; "": no cluster
	Secrets  string `json:"secrets,omitempty"` // path of the Secrets of the namespace of jobs at the API server
	Attempt  string `json:"attempt,omitempty"` // of the other job; "": none runs
	Victim   Victim `json:"victim,omitzero"`   // what the other job reported of itself
}

// Victim is what the tool of the other job reports of itself.
type Victim struct {
	File string `json:"file"` // a file in it, only for its user
	Port string `json:"port"` // host:port at which it listens
	Name string `json:"name"` // abstract name at which it listens, without the leading @
}

// Message is one line of JSON from a tool to the test.
type Message struct {
	Victim *Victim           `json:"victim,omitempty"` // of the other job's tool
	Daemon bool              `json:"daemon,omitempty"` // of the process that wants to outlive its job
	Tried  map[string]string `json:"tried,omitempty"`  // by capability: "" if it was reached, else what refused it
}
