package wire

import (
	"encoding/json"
	"time"
)

// The routes of the control API about the audit.
var (
	GetAudit             = Route{"get-audit", "GET", "/v1/audit"}
	ListAuditChains      = Route{"list-audit-chains", "GET", "/v1/audit/chains"}
	ListAuditEntries     = Route{"list-audit-entries", "GET", "/v1/audit/chains/{chain}/entries"}
	ListAuditCheckpoints = Route{"list-audit-checkpoints", "GET", "/v1/audit/checkpoints"}
)

// Audit is what a reader of the audit must know to verify it.
type Audit struct {
	Org      string            `json:"org"`
	KeptDays int               `json:"kept_days" doc:"Days for which entries and checkpoints are kept"`
	Keys     []VerificationKey `json:"keys" nullable:"false" doc:"Public keys that sign checkpoints, or signed them before"`
}

// AuditChain is a chain of entries.
type AuditChain struct {
	Chain     string    `json:"chain" doc:"Identifier of an install, or org for what belongs to no install"`
	Install   string    `json:"install,omitempty" doc:"Name of the install when the chain began"`
	CreatedAt time.Time `json:"created_at"`
}

// AuditEntry records one change. Its hash is the SHA-256 of its canonical JSON (RFC 8785).
type AuditEntry struct {
	V        int           `json:"v"`
	Org      string        `json:"org"`
	Chain    string        `json:"chain"`
	N        int64         `json:"n" doc:"Number in the chain"`
	Prev     string        `json:"prev,omitempty" doc:"Hash of the entry before in the chain; absent: this is the first one"`
	ID       string        `json:"id" doc:"Identifies the commit of the change"`
	At       time.Time     `json:"at" doc:"When the change was committed"`
	Recorded time.Time     `json:"recorded" doc:"When the entry joined its chain"`
	Actor    AuditActor    `json:"actor"`
	Action   string        `json:"action" doc:"Operation of this API; of what a runner did: operation of the runner API; end-job: the control plane ended a job"`
	Object   AuditObject   `json:"object"`
	Also     []string      `json:"also,omitempty" doc:"Further objects that the commit changed, at most three"`
	Request  string        `json:"request,omitempty" doc:"ID of the request"`
	Decision string        `json:"decision" enum:"allowed"`
	Rights   []string      `json:"rights,omitempty" doc:"Rights for which the operation can ask"`
	Changes  []AuditChange `json:"changes,omitempty"`
	Omitted  *AuditOmitted `json:"omitted,omitempty" doc:"Changes that are not listed, because an entry has a largest size"`
}

// AuditActor is who made a change.
type AuditActor struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty" doc:"Name at the time of the change"`
	Kind string `json:"kind,omitempty" doc:"Kind of the principal; absent: an API token. runner: an agent or a step of the runner with this ID; control-plane: the control plane itself"`
}

// AuditObject is what was changed.
type AuditObject struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	ID   string `json:"id,omitempty"`
}

// AuditChange is a field before and after a change. A secret and a long value have their digest in place of the value.
type AuditChange struct {
	Field  string          `json:"field"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// AuditOmitted are changes that an entry does not list.
type AuditOmitted struct {
	Count  int    `json:"count"`
	Digest string `json:"digest" doc:"SHA-256 of the canonical JSON of all changes"`
}

// AuditHead is the newest entry of a chain.
type AuditHead struct {
	Chain string `json:"chain"`
	N     int64  `json:"n"`
	Hash  string `json:"hash"`
}

// AuditCheckpoint has the heads of the chains that moved since the checkpoint before. What is signed is its canonical JSON without
// key and signature, as the payload of DSSE's PAE with the type application/vnd.fairlead.audit-checkpoint+json.
type AuditCheckpoint struct {
	V         int         `json:"v"`
	Org       string      `json:"org"`
	N         int64       `json:"n"`
	Prev      string      `json:"prev,omitempty" doc:"Hash of the checkpoint before; absent: this is the first one"`
	At        time.Time   `json:"at"`
	Heads     []AuditHead `json:"heads" nullable:"false"`
	Key       string      `json:"key" doc:"ID of the key that signed"`
	Signature []byte      `json:"signature" doc:"Ed25519"`
}
