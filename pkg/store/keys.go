package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store/engine"
)

// Only this file builds keys of the table. docs/contributing/table-items.md lists
// the access pattern of each key. "#" joins the parts of a key; no identifier or
// name contains it.

func join(parts ...string) string { return strings.Join(parts, "#") }

func key(partition, sort string) engine.Key {
	return engine.Key{Partition: partition, Sort: sort}
}

// ofOrg returns the partition of an org's items of a kind. With org "" it returns the
// partition of the items that the operator shares with all orgs. The two partitions are
// never equal: "SHARED" is the first part of a key, and an org's identifier is the second
// part.
func ofOrg(org fairlead.OrgID, kind string) string {
	if org == "" {
		return join("SHARED", kind)
	}
	return join("ORG", string(org), kind)
}

// Partitions that hold many items.
func appsPartition(org fairlead.OrgID) string     { return join("ORG", string(org), "APP") }
func installsPartition(org fairlead.OrgID) string { return join("ORG", string(org), "INSTALL") }
func runnersPartition(org fairlead.OrgID) string  { return ofOrg(org, "RUNNER") }
func rulesPartition(org fairlead.OrgID) string    { return ofOrg(org, "RULE") }
func groupsPartition(org fairlead.OrgID) string   { return ofOrg(org, "GROUP") }
func membersPartition(org fairlead.OrgID) string  { return ofOrg(org, "MEMBER") }
func varsPartition(org fairlead.OrgID) string     { return ofOrg(org, "VARIABLES") }
func installPartition(id fairlead.InstallID) string {
	return join("INSTALL", string(id))
}
func appPartition(id fairlead.AppID) string       { return join("APP", string(id)) }
func runnerPartition(id fairlead.RunnerID) string { return join("RUNNER", string(id)) }

func channelsPartition() string { return ofOrg("", "CHANNEL") }

func tokensPartition(org fairlead.OrgID) string { return join("ORG", string(org), "TOKEN") }

func usersPartition(org fairlead.OrgID) string  { return ofOrg(org, "USER") }
func loginsPartition(org fairlead.OrgID) string { return ofOrg(org, "LOGIN") }
func personPartition(identity string) string    { return join("PERSON", identity) }
func orgsPartition() string                     { return ofOrg("", "ORG") }
func loginIssuersPartition() string             { return ofOrg("", "LOGINISSUER") }
func serviceAccountsPartition(org fairlead.OrgID) string {
	return join("ORG", string(org), "SERVICEACCOUNT")
}
func serviceAccountPartition(id string) string { return join("SERVICEACCOUNT", id) }

func webhooksPartition(org fairlead.OrgID) string { return join("ORG", string(org), "WEBHOOK") }
func webhookPartition(id string) string           { return join("WEBHOOK", id) }

// Partitions of the List index.
func jobsList(org fairlead.OrgID) string        { return join("ORG", string(org), "JOBS") }
func deploymentsList(org fairlead.OrgID) string { return join("ORG", string(org), "DEPLOYMENTS") }

// watchesList holds the watches of all runners of all orgs. A runner's entry is
// written once.
const watchesList = "WATCHES"

// duePartition is the only partition of the Due index. Each claim writes one entry, which
// is far below DynamoDB's limit of 1,000 writes a second for a partition. If one
// partition is not enough, split it by a digit of the job's identifier.
const duePartition = "DUE"

// scheduleDuePartition is the partition of the Due index that holds the schedules of actions of all installs. They have
// a partition of their own, because the sweep of jobs must not read them: a job that is late costs more.
const scheduleDuePartition = "DUE#SCHEDULE"

// planDuePartition is the partition of the Due index that holds the deployments of which a plan waits. Most wait for days,
// and the sweep of jobs must not read them.
const planDuePartition = "DUE#PLAN"

// auditPartition holds the chains and the checkpoints of an org, and auditEntries the entries of one chain.
func auditPartition(org fairlead.OrgID) string { return join("AUDIT", string(org)) }
func auditEntries(org fairlead.OrgID, chain string) string {
	return join("AUDIT", string(org), chain)
}

// auditNumber has a fixed width, so the byte order is the order of numbers.
func auditNumber(n int64) string { return fmt.Sprintf("%012d", n) }

// Keys of single items.
func appKey(org fairlead.OrgID, name string) engine.Key     { return key(appsPartition(org), name) }
func installKey(org fairlead.OrgID, name string) engine.Key { return key(installsPartition(org), name) }
func runnerKey(org fairlead.OrgID, name string) engine.Key  { return key(runnersPartition(org), name) }
func versionKey(id fairlead.VersionID) engine.Key           { return key(join("VERSION", string(id)), "VERSION") }
func versionRefKey(app fairlead.AppID, at time.Time, id fairlead.VersionID) engine.Key {
	return key(appPartition(app), versionRefPrefix+join(dueTime(at), string(id)))
}
func versionNameKey(app fairlead.AppID, name string) engine.Key {
	return key(appPartition(app), versionNamePrefix+name)
}
func versionNamesKey(id fairlead.VersionID) engine.Key {
	return key(join("VERSION", string(id)), "NAMES")
}
func componentKey(id fairlead.InstallID, name string) engine.Key {
	return key(installPartition(id), componentPrefix+name)
}
func deploymentRefKey(id fairlead.InstallID, d fairlead.DeploymentID) engine.Key {
	return key(installPartition(id), deploymentRefPrefix+string(d))
}
func actionScheduleKey(id fairlead.InstallID, action string) engine.Key {
	return key(installPartition(id), schedulePrefix+action)
}
func stateKey(id fairlead.InstallID, component string) engine.Key {
	return key(installPartition(id), statePrefix+component)
}
func deploymentKey(id fairlead.DeploymentID) engine.Key {
	return key(join("DEPLOYMENT", string(id)), "DEPLOYMENT")
}
func jobKey(id fairlead.JobID) engine.Key { return key(join("JOB", string(id)), "JOB") }
func changeSetKey(id fairlead.JobID, epoch int64) engine.Key {
	return key(join("JOB", string(id)), "SUMMARY#"+strconv.FormatInt(epoch, 10))
}
func runnerByIDKey(id fairlead.RunnerID) engine.Key {
	return key(runnerPartition(id), "RUNNER")
}
func sessionKey(runner fairlead.RunnerID, id fairlead.SessionID) engine.Key {
	return key(runnerPartition(runner), sessionPrefix+string(id))
}
func agentKey(runner fairlead.RunnerID, keyID string) engine.Key {
	return key(runnerPartition(runner), agentPrefix+keyID)
}
func openSessionsKey(runner fairlead.RunnerID, of string) engine.Key {
	return key(runnerPartition(runner), openSessionsPrefix+of)
}
func trustKey(runner fairlead.RunnerID, name string) engine.Key {
	return key(runnerPartition(runner), trustPrefix+name)
}
func tokenUseKey(use string) engine.Key            { return key(join("TOKENUSE", use), "TOKENUSE") }
func stackKey(runner fairlead.RunnerID) engine.Key { return key(runnerPartition(runner), "STACK") }
func stackRefKey(id fairlead.InstallID) engine.Key { return key(installPartition(id), "STACK") }
func runnerUseKey(runner fairlead.RunnerID, install fairlead.InstallID) engine.Key {
	return key(runnerPartition(runner), usePrefix+string(install))
}
func watchKey(id fairlead.RunnerID) engine.Key       { return key(runnerPartition(id), watchSort) }
func runnerSlotsKey(id fairlead.RunnerID) engine.Key { return key(runnerPartition(id), "SLOTS") }
func warmStepKey(runner fairlead.RunnerID, id fairlead.WarmStepID) engine.Key {
	return key(runnerPartition(runner), warmStepPrefix+string(id))
}
func ruleKey(org fairlead.OrgID, match string) engine.Key { return key(rulesPartition(org), match) }
func groupKey(org fairlead.OrgID, path placement.Path) engine.Key {
	return key(groupsPartition(org), path.String())
}
func memberKey(org fairlead.OrgID, m Member) engine.Key {
	return key(membersPartition(org), join(m.Group.String(), m.Kind, m.Name))
}
func varsKey(org fairlead.OrgID, of Scope) engine.Key {
	return key(varsPartition(org), join(of.Kind, of.Name))
}
func enrolmentKey(hash string) engine.Key { return key(join("ENROLMENT", hash), "ENROLMENT") }
func tokenKey(hash string) engine.Key     { return key(join("TOKEN", hash), "TOKEN") }
func tokenRefKey(org fairlead.OrgID, name string) engine.Key {
	return key(tokensPartition(org), name)
}
func userKey(org fairlead.OrgID, email string) engine.Key { return key(usersPartition(org), email) }
func personKey(identity string, org fairlead.OrgID) engine.Key {
	return key(personPartition(identity), string(org))
}
func loginKey(hash string) engine.Key { return key(join("LOGIN", hash), "LOGIN") }
func loginRefKey(org fairlead.OrgID, of, id string) engine.Key {
	return key(loginsPartition(org), join(of, id))
}
func serviceAccountKey(org fairlead.OrgID, name string) engine.Key {
	return key(serviceAccountsPartition(org), name)
}
func assignmentKey(account string, runner fairlead.RunnerID) engine.Key {
	return key(serviceAccountPartition(account), assignmentPrefix+string(runner))
}
func loginLinkKey(hash string) engine.Key   { return key(join("LOGINLINK", hash), "LOGINLINK") }
func orgKey(name fairlead.OrgID) engine.Key { return key(orgsPartition(), string(name)) }
func loginIssuerKey(name string) engine.Key { return key(loginIssuersPartition(), name) }
func countKey(c Counted) engine.Key         { return key(ofOrg(c.Org, "COUNT"), string(c.Quota)) }

// requestsPartition is of a span of time, so that a reader gets no items of earlier ones.
func requestsPartition(org fairlead.OrgID, span int64) string {
	return ofOrg(org, "REQUESTS#"+strconv.FormatInt(span, 10))
}

func requestsKey(org fairlead.OrgID, span int64, process string) engine.Key {
	return key(requestsPartition(org, span), process)
}
func generationKey() engine.Key             { return key("GENERATION", "GENERATION") }
func keySetsKey() engine.Key                { return key("KEYSETS", "KEYSETS") }
func idempotencyKey(hash string) engine.Key { return key(join("IDEMPOTENCY", hash), "IDEMPOTENCY") }

func channelKey(name string) engine.Key { return key(channelsPartition(), name) }

func webhookKey(org fairlead.OrgID, name string) engine.Key {
	return key(webhooksPartition(org), name)
}

// deliveryKey sorts the deliveries of a webhook by event.
func deliveryKey(webhook, event string) engine.Key {
	return key(webhookPartition(webhook), deliveryPrefix+event)
}

func auditChainKey(org fairlead.OrgID, chain string) engine.Key {
	return key(auditPartition(org), auditChainPrefix+chain)
}
func checkpointKey(org fairlead.OrgID, n int64) engine.Key {
	return key(auditPartition(org), checkpointPrefix+auditNumber(n))
}
func auditEntryKey(org fairlead.OrgID, chain string, n int64) engine.Key {
	return key(auditEntries(org, chain), auditNumber(n))
}
func auditedKey(commit string) engine.Key { return key(join("AUDITED", commit), "AUDITED") }

// noun is a kind of item whose changes can cause an event or a wake-up.
type noun int

const (
	nounOther noun = iota
	nounJob
	nounDeployment
	nounState
	nounDelivery
	nounWatch
)

// nounOf returns the kind of the item at the key.
func nounOf(k engine.Key) noun {
	kind, _, _ := strings.Cut(k.Partition, "#")
	switch {
	case kind == "JOB" && k.Sort == "JOB":
		return nounJob
	case kind == "DEPLOYMENT" && k.Sort == "DEPLOYMENT":
		return nounDeployment
	case kind == "INSTALL" && strings.HasPrefix(k.Sort, statePrefix):
		return nounState
	case kind == "WEBHOOK" && strings.HasPrefix(k.Sort, deliveryPrefix):
		return nounDelivery
	case kind == "RUNNER" && k.Sort == watchSort:
		return nounWatch
	}
	return nounOther
}

// Prefixes of sort keys within a partition.
const (
	componentPrefix     = "COMPONENT#"
	versionRefPrefix    = "VERSION#"
	versionNamePrefix   = "NAME#"
	deploymentRefPrefix = "DEPLOYMENT#"
	statePrefix         = "STATE#"
	schedulePrefix      = "SCHEDULE#"
	sessionPrefix       = "SESSION#"
	agentPrefix         = "AGENT#"
	openSessionsPrefix  = "OPEN#"
	usePrefix           = "INSTALL#"
	trustPrefix         = "TRUST#"
	assignmentPrefix    = "RUNNER#"
	deliveryPrefix      = "DELIVERY#"
	warmStepPrefix      = "WARM#"
	watchSort           = "WATCH"
	auditChainPrefix    = "CHAIN#"
	checkpointPrefix    = "CHECKPOINT#"
)

// dueKey returns an item's key in the Due index, or nil for the zero time. The
// time has a fixed width, so the byte order is the order of time.
func dueKey(at time.Time, id string) *engine.Key { return dueIn(duePartition, at, id) }

// scheduleDueKey returns the key of an install's schedule in the Due index, or nil for the zero time.
func scheduleDueKey(at time.Time, id fairlead.InstallID, action string) *engine.Key {
	return dueIn(scheduleDuePartition, at, join(string(id), action))
}

// planDueKey returns a deployment's key in the Due index, or nil for the zero time.
func planDueKey(at time.Time, id fairlead.DeploymentID) *engine.Key {
	return dueIn(planDuePartition, at, string(id))
}

func dueIn(partition string, at time.Time, id string) *engine.Key {
	if at.IsZero() {
		return nil
	}
	k := key(partition, join(dueTime(at), id))
	return &k
}

func dueTime(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
