package events

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// SpecPayloadType is the payload type of a job spec's envelope. The signature covers it, so another signed document
// is not accepted as a spec.
const SpecPayloadType = "application/vnd.fairlead.job-spec.v1+json"

// JobSpec defines what a step may do: one operation on one component of one install, for one epoch, until it expires.
// A step does only what its spec requests, and refuses a spec that no pinned key has signed.
type JobSpec struct {
	V           int                   `json:"v"` // 1
	Runner      fairlead.RunnerID     `json:"runner"`
	Install     fairlead.InstallID    `json:"install,omitempty"`
	InstallName string                `json:"install_name,omitempty"`
	Deployment  fairlead.DeploymentID `json:"deployment,omitempty"`
	Job         fairlead.JobID        `json:"job"`
	Epoch       int64                 `json:"epoch"`
	Component   string                `json:"component,omitempty"`
	Plugin      string                `json:"plugin"`
	Operation   string                `json:"operation"`
	IssuedAt    time.Time             `json:"issued_at"`
	ExpiresAt   time.Time             `json:"expires_at"`
	Timeout     Seconds               `json:"timeout_seconds"`     // longest run of the step
	Grace       Seconds               `json:"grace_seconds"`       // time between interrupt and kill
	Artifact    *ArtifactRef          `json:"artifact,omitempty"`  // the component's source
	Image       string                `json:"image,omitempty"`     // the image in which the step runs, by digest; "": that of the runner
	Version     *VersionRef           `json:"version,omitempty"`   // the app version of the source; only sent to a step that knows the field
	Vars        map[string]SpecVar    `json:"vars,omitempty"`      // for an apply or destroy: the variables of its plan, so that the step can mask the sensitive ones
	Options     map[string]SpecVar    `json:"options,omitempty"`   // settings of the component's type; never sensitive
	State       *StateRef             `json:"state,omitempty"`     // where the tool keeps its state
	Registry    *RegistryRef          `json:"registry,omitempty"`  // where the component keeps images; only of types that need it
	Plan        *PlanRef              `json:"plan,omitempty"`      // the saved plan to apply
	Approvals   [][]byte              `json:"approvals,omitempty"` // envelopes of package approval that the customer signed; only sent to a step that knows the field
	Audit       *AuditHead            `json:"audit,omitempty"`     // the newest entry of the install's audit; only sent to a step that knows the field
	Build       *Build                `json:"build,omitempty"`     // what a build makes
	Push        string                `json:"push,omitempty"`      // for a build: the repository to which it pushes
	Built       *BuiltRef             `json:"built,omitempty"`     // where Artifact comes from, if a build made it; only sent to a step that knows the field
	Move        []MovedState          `json:"move,omitempty"`      // states to copy to another storage
	Values      []ValuesRef           `json:"values,omitempty"`    // the sensitive values that the step fetches for the variables, sorted by name
	Applied     *Inputs               `json:"applied,omitempty"`   // for a type with a blind plan: the inputs of the last apply; nil: the component is absent, or its last apply did not succeed
	AppEnv      map[string]SpecVar    `json:"app_env,omitempty"`   // environment variables of the tool that the app declares, as texts; Env and SecretEnv override them
	Env         map[string]string     `json:"env,omitempty"`       // the tool's environment variables; never secret
	// SecretEnv holds further environment variables. They must not appear in argv, logs and summaries.
	SecretEnv map[string]string `json:"secret_env,omitempty"`
}

// Inputs returns the variables, the options under their names with "options.", the environment variables under their
// names with "env.", and the image as "job.image". No variable has such a name.
func (s JobSpec) Inputs() map[string]SpecVar {
	out := make(map[string]SpecVar, len(s.Vars)+len(s.Options)+len(s.AppEnv))
	maps.Copy(out, s.Vars)
	for name, v := range s.Options {
		out[optionPrefix+name] = v
	}
	for name, v := range s.AppEnv {
		out[envPrefix+name] = v
	}
	if s.Image != "" {
		quoted, _ := json.Marshal(s.Image) // a string always encodes
		out[imageInput] = SpecVar{Value: quoted}
	}
	return out
}

// SetInputs sets the variables, the options, AppEnv and the image from what Inputs returns.
func (s *JobSpec) SetInputs(inputs map[string]SpecVar) {
	s.Vars, s.Options, s.AppEnv, s.Image = make(map[string]SpecVar, len(inputs)), nil, nil, ""
	put := func(to *map[string]SpecVar, name string, v SpecVar) {
		if *to == nil {
			*to = map[string]SpecVar{}
		}
		(*to)[name] = v
	}
	for name, v := range inputs {
		if option, ok := strings.CutPrefix(name, optionPrefix); ok {
			put(&s.Options, option, v)
		} else if variable, ok := strings.CutPrefix(name, envPrefix); ok {
			put(&s.AppEnv, variable, v)
		} else if name == imageInput {
			_ = json.Unmarshal(v.Value, &s.Image) // the control plane sends a text only; without an image no step runs the spec
		} else {
			s.Vars[name] = v
		}
	}
}

const (
	optionPrefix = "options."
	envPrefix    = "env."
	imageInput   = "job.image"
)

// Seconds is a whole number of seconds.
type Seconds int64

// Duration converts s.
func (s Seconds) Duration() time.Duration { return time.Duration(s) * time.Second }

// ArtifactRef names an OCI artifact in the control plane's registry.
type ArtifactRef struct {
	Repository string `json:"repository"`
	Digest     string `json:"digest"` // sha256:…
}

// Build is what a build makes: the artifact of a component whose source is not in the app's folder.
type Build struct {
	Org       fairlead.OrgID `json:"org,omitempty"` // only in a job spec and in a Provenance
	App       string         `json:"app"`
	Component string         `json:"component"`
	Type      string         `json:"type"`            // the component's, a type of package component
	Source    string         `json:"source"`          // folder of the component in what is fetched; "." is its top
	From      Origin         `json:"from"`            // what is fetched
	Vars      []string       `json:"vars,omitempty"`  // names of the variables that the app gives to the component, without values
	Image     *ImageBuild    `json:"image,omitempty"` // how the image is built; nil: the artifact is the packed source
	// Logins holds the names of secrets of the runner with the logins for hosts besides that of From: registries of base images, and
	// hosts of modules.
	Logins map[string]string `json:"logins,omitempty"`
}

// Same reports whether two builds make the same from the same: all of them but Vars and the names of secrets is equal.
func (b Build) Same(o Build) bool {
	b, o = b.Public(), o.Public()
	return reflect.DeepEqual(b, o)
}

// Public returns the build without Vars and without the names of secrets, which change nothing of what it makes.
func (b Build) Public() Build {
	b.Vars, b.From.Credentials, b.Logins = nil, "", nil
	return b
}

// ImageBuild is how an image is built from a Dockerfile or a Go program. It holds no secret.
type ImageBuild struct {
	Dockerfile string            `json:"dockerfile,omitempty"` // path in the build context; "": Go makes the image
	Target     string            `json:"target,omitempty"`     // stage; "": the last one
	Platforms  []string          `json:"platforms,omitempty"`  // sorted; empty: that of the image builder
	Args       map[string]string `json:"args,omitempty"`       // values of ARG instructions, by name
	Go         *GoProgram        `json:"go,omitempty"`         // nil: a Dockerfile makes the image
}

// GoProgram is a Go program that is added to a base image.
type GoProgram struct {
	Package string `json:"package"` // folder of the main package in the component's folder
	Base    string `json:"base"`    // image by digest
}

// Origin is a place from which a build fetches a source.
type Origin struct {
	Kind        string `json:"kind"`                  // OriginGit, OriginChart, OriginModule, OriginOCI or OriginFolder
	URL         string `json:"url"`                   // "" of OriginFolder; of the git repository, of the repository of charts, or oci://… of the chart or the artifact; address of the module in its registry
	Chart       string `json:"chart,omitempty"`       // name of the chart in a repository of charts
	Ref         string `json:"ref"`                   // commit, tag or branch; version of the chart or the module; digest of the OCI artifact or of the packed folder
	Credentials string `json:"credentials,omitempty"` // name of the runner's secret with the password; "": none
}

// The kinds of an Origin.
const (
	OriginGit    = "git"
	OriginChart  = "chart"
	OriginModule = "module"
	OriginOCI    = "oci"
	OriginFolder = "folder" // of the app, packed as an artifact of the component
)

// Place returns the URL of the origin, or a description of an origin without one.
func (o Origin) Place() string {
	if o.Kind == OriginFolder {
		return "the app's folder"
	}
	return o.URL
}

// VersionRef is an app version with all data from which its identifier is computed.
type VersionRef struct {
	ID        fairlead.VersionID `json:"id"`
	Org       fairlead.OrgID     `json:"org"`
	Config    []byte             `json:"config"`    // the app's configuration, byte for byte
	Artifacts map[string]string  `json:"artifacts"` // digest by component
}

// FieldVersion is the name with which a step declares that it knows JobSpec.Version. A step refuses a spec with an
// unknown field, so an older step gets a spec without it.
const FieldVersion = "version"

// VersionID returns the identifier of an app version: "ver_" and the first 26 hex digits of a SHA-256 of the org, the
// canonical configuration and the digests of the artifacts by component.
func VersionID(org fairlead.OrgID, config []byte, artifacts map[string]string) (fairlead.VersionID, error) {
	b, err := json.Marshal(artifacts) // JSON writes a map in the order of its keys
	if err != nil {
		return "", fmt.Errorf("hash version: %w", err)
	}
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(org), config, b}, []byte{'\n'}))
	return fairlead.VersionID(fairlead.PrefixVersion + "_" + hex.EncodeToString(sum[:])[:26]), nil
}

// AuditHead is the newest entry of the audit of a job's install. The signature of the spec covers it.
type AuditHead struct {
	N    int64  `json:"n"`
	Hash string `json:"hash"` // as package audit makes it
}

// FieldAudit is the name with which a step declares that it knows JobSpec.Audit.
const FieldAudit = "audit"

// FieldMove is the name with which a step declares that it knows ValuesMove.
const FieldMove = "move"

// FieldApprovals is the name with which a step declares that it knows JobSpec.Approvals.
const FieldApprovals = "approvals"

// check returns a refusal if the version's identifier does not match its content, or if the spec's artifact is not the
// version's artifact for the component.
func (v *VersionRef) check(spec JobSpec) error {
	switch id, err := VersionID(v.Org, v.Config, v.Artifacts); {
	case err != nil:
		return refuse(fairlead.ReasonSpecMalformed, "the job spec's app version cannot be read")
	case id != v.ID:
		return refuse(fairlead.ReasonSpecArtifact, "the job spec names version %s of the app, but contains the content of version %s. Nothing was started: the record of the version may have been altered; publish the app again from the same folder", v.ID, id)
	case spec.Artifact == nil || spec.Artifact.Digest == "" || spec.Artifact.Digest != v.Artifacts[spec.Component]:
		return refuse(fairlead.ReasonSpecArtifact, "the job spec names an artifact that is not the one of version %s of the app for component %q. Nothing was started: the record of the version may have been altered; publish the app again from the same folder", v.ID, spec.Component)
	}
	return nil
}

// SpecVar is the value of one of the tool's input variables. A sensitive value must not appear in argv, logs and
// summaries. A spec has none: it has Refs or Last in its place, and the step sets Value. A step that knows neither field
// refuses the spec, because it would run its tool with null.
type SpecVar struct {
	Value     json.RawMessage `json:"value,omitempty"`
	Sensitive bool            `json:"sensitive,omitempty"`
	Refs      json.RawMessage `json:"refs,omitempty"` // the value in the notation of app.yaml, with the references to sensitive values in it
	Last      bool            `json:"last,omitempty"` // the value is that of the component's last plan or apply, in the values ValuesLast
}

// ValuesRef names sensitive values that the step fetches, and the digest of what it must get.
type ValuesRef struct {
	Name   string `json:"name"`   // ValuesInputs, ValuesParams, ValuesLast, ValuesEnv, ValuesMove, or ValuesOutputs and the component's name
	Digest []byte `json:"digest"` // HMAC-SHA256 of the fetched bytes under the step's lease token
	// Encrypted lists the fetched values that only the customer's side can open, sorted by name: each is the encrypted value as
	// base64. A step that does not know the field refuses the spec, because it would give the encrypted value to its tool.
	Encrypted []string `json:"encrypted,omitempty"`
}

// The names of values.
const (
	ValuesInputs  = "inputs"      // inputs of the install
	ValuesParams  = "params"      // params of a run of an action
	ValuesLast    = "last"        // variables of the component's last plan or apply
	ValuesOutputs = "components." // outputs of a component, whose name follows
	ValuesEnv     = "environment" // encrypted environment variables of the install
	ValuesMove    = "move"        // secrets of the install that the control plane can open: the step encrypts them, and its tool does not get them
)

// ValuesDigest returns the digest of the bytes that a step fetches under a name. The key is the lease token, which the
// step and the control plane have and no reader of the spec has: the digest of a short secret without a key could be
// looked up. The bytes can be encrypted to another key, and the digest stays as it is.
func ValuesDigest(leaseToken, name string, values []byte) []byte {
	h := hmac.New(sha256.New, []byte(leaseToken))
	h.Write([]byte("fairlead-values-v1\n" + name + "\n"))
	h.Write(values)
	return h.Sum(nil)
}

// Matches reports whether the fetched bytes are those that the spec names.
func (r ValuesRef) Matches(leaseToken string, values []byte) bool {
	return hmac.Equal(r.Digest, ValuesDigest(leaseToken, r.Name, values))
}

// StateRef locates a component's state. Storage is "local" (the runner's own disk), "http" (the control plane, at
// Path below the runner API), or a storage of the customer: "s3", "gcs", "azurerm", "kubernetes". Key is unique in a
// storage and is never reused for another component.
type StateRef struct {
	Storage string      `json:"storage"`
	Key     string      `json:"key"` // <install id>/<component>
	Path    string      `json:"path,omitempty"`
	In      *StateStore `json:"in,omitempty"` // nil: the storage needs no further location
}

// StateStore locates a storage. It contains no credentials: the process that runs the job has its own credentials. The
// comment of each field names the storages that use the field.
type StateStore struct {
	Bucket   string `json:"bucket,omitempty"`   // s3, gcs
	Prefix   string `json:"prefix,omitempty"`   // s3, gcs, azurerm; the prefix of all keys, without a slash at its start or end
	KMSKey   string `json:"kms_key,omitempty"`  // s3, gcs; the key that encrypts states; "": the bucket's default key
	Region   string `json:"region,omitempty"`   // s3
	Endpoint string `json:"endpoint,omitempty"` // s3; URL of a server that is not AWS

	Account       string `json:"account,omitempty"`        // azurerm; storage account
	Container     string `json:"container,omitempty"`      // azurerm
	ResourceGroup string `json:"resource_group,omitempty"` // azurerm
	Subscription  string `json:"subscription,omitempty"`   // azurerm

	Namespace string `json:"namespace,omitempty"` // kubernetes; of the cluster in which the job runs
	Folder    string `json:"folder,omitempty"`    // local; absolute, else below the runner's data folder
}

// RegistryRef locates the repository of a component in the registry of its install. It contains no credentials.
type RegistryRef struct {
	Kind       string `json:"kind"`               // oci, ecr, control-plane
	URL        string `json:"url,omitempty"`      // such as https://registry.example.com; control-plane: "", the step knows it
	Repository string `json:"repository"`         // of this component only
	Variable   string `json:"variable,omitempty"` // oci: name of the environment variable with the login; "": none
	CA         string `json:"ca,omitempty"`       // name of the environment variable with the server's certificates in PEM; "": those that the machine trusts
	Region     string `json:"region,omitempty"`   // ecr
}

// MovedState is a component's state to copy from one storage to another. The destination may already have all or a
// part of the state.
type MovedState struct {
	Component string   `json:"component"`
	From      StateRef `json:"from"`
	To        StateRef `json:"to"`
}

// PlanRef names the approved saved plan: exactly the bytes that the plan job stored.
type PlanRef struct {
	Job    fairlead.JobID `json:"job"`
	Digest string         `json:"digest"` // sha256:… of the saved plan file
}

// Refusal is the error for a spec that a step does not run.
type Refusal struct {
	Reason  fairlead.Reason // ReasonSpec…
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(reason fairlead.Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// KeyID returns the identifier of a public key: the first 16 hex digits of its SHA-256.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(pub)
	return hex.EncodeToString(sum[:8])
}

// Signer signs envelopes with one Ed25519 key. Safe for concurrent use.
type Signer struct{ key signerVerifier }

// NewSigner returns a Signer for a key in memory.
func NewSigner(key ed25519.PrivateKey) *Signer {
	return &Signer{key: signerVerifier{key: key, pub: key.Public().(ed25519.PublicKey)}}
}

// NewRemoteSigner returns a Signer for a key in a key service. sign returns the key's Ed25519 signature of a message
// of at most 4,096 bytes, because such services limit the size of a message (AWS KMS: 4,096 bytes). The message is a
// digest, except of a small statement.
func NewRemoteSigner(pub ed25519.PublicKey, sign func(ctx context.Context, message []byte) ([]byte, error)) *Signer {
	return &Signer{key: signerVerifier{pub: pub, remote: sign}}
}

// Public returns the public key that verifies signatures of s.
func (s *Signer) Public() ed25519.PublicKey { return s.key.pub }

// Sign returns the DSSE envelope, as JSON, around spec.
func (s *Signer) Sign(ctx context.Context, spec JobSpec) ([]byte, error) {
	spec.V = 1
	// The escapes of HTML would make each "<" of a variable six times as large, and the size of a spec is limited.
	var payload bytes.Buffer
	enc := json.NewEncoder(&payload)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(spec); err != nil {
		return nil, fmt.Errorf("encode spec of job %s: %w", spec.Job, err)
	}
	es, err := dsse.NewEnvelopeSigner(s.key)
	if err != nil {
		return nil, fmt.Errorf("sign spec of job %s: %w", spec.Job, err)
	}
	env, err := es.SignPayload(ctx, SpecPayloadType, bytes.TrimSuffix(payload.Bytes(), []byte("\n")))
	if err != nil {
		return nil, fmt.Errorf("sign spec of job %s: %w", spec.Job, err)
	}
	return json.Marshal(env)
}

// Expect holds the values that the agent got with its claim of the job. A spec with different values is not for this
// step.
type Expect struct {
	Runner     fairlead.RunnerID
	Install    string             // name; "": the claim named none
	InstallID  fairlead.InstallID // "": the claim named none, because the control plane is older
	Job        fairlead.JobID
	Epoch      int64
	Operation  string
	Operations []string // the operations that this runner supports
	Image      string   // the image in which the step runs, by digest; "": that of the runner
}

// MaxEnvelope is the largest envelope that a step reads, in bytes. The payload of an envelope is in base64. The limit is
// higher than the size of an envelope with the largest variables of a component.
const MaxEnvelope = 28 << 20

// clockSkew is the largest accepted difference between the clocks of a runner and of the control plane.
const clockSkew = 2 * time.Minute

// Verify opens an envelope and returns its spec. Verify returns no spec and a *Refusal if no key of keys signed the
// envelope, if the spec does not match want, or if the spec is not valid at the time now.
func Verify(ctx context.Context, envelope []byte, keys []ed25519.PublicKey, want Expect, now time.Time) (JobSpec, error) {
	if len(envelope) > MaxEnvelope {
		return JobSpec{}, refuse(fairlead.ReasonSpecMalformed, "the job spec is larger than %d bytes", MaxEnvelope)
	}
	var env dsse.Envelope
	if err := json.Unmarshal(envelope, &env); err != nil {
		return JobSpec{}, refuse(fairlead.ReasonSpecMalformed, "the job spec is not a DSSE envelope")
	}
	if env.PayloadType != SpecPayloadType {
		return JobSpec{}, refuse(fairlead.ReasonSpecMalformed, "the envelope contains %.100q, not a job spec", env.PayloadType)
	}
	if len(keys) == 0 {
		return JobSpec{}, refuse(fairlead.ReasonSpecSignature, "no verification key is pinned, so no job spec can be verified")
	}
	payload, _, err := opened(ctx, &env, keys)
	if err != nil {
		return JobSpec{}, refuse(fairlead.ReasonSpecSignature, "the job spec is not signed by a pinned key")
	}
	var spec JobSpec
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields() // an unknown field might be a restriction, which this step would ignore
	err = dec.Decode(&spec)
	if err == nil && dec.More() {
		err = errors.New("more than one document")
	}
	if err != nil {
		return JobSpec{}, refuse(fairlead.ReasonSpecVersion, "the job spec contains a field that this runner does not know: update the runner")
	}
	if spec.V != 1 {
		return JobSpec{}, refuse(fairlead.ReasonSpecVersion, "the job spec has version %d, but this runner supports only version 1", spec.V)
	}
	if err := check(spec, want, now); err != nil {
		return JobSpec{}, err
	}
	if err := verifySource(ctx, spec, keys); err != nil {
		return JobSpec{}, err
	}
	return spec, nil
}

// opened returns the payload of an envelope if at least one key of keys signed it, and the KeyID of such a key.
func opened(ctx context.Context, env *dsse.Envelope, keys []ed25519.PublicKey) (payload []byte, signedBy string, err error) {
	verifiers := make([]dsse.Verifier, len(keys))
	for i, k := range keys {
		verifiers[i] = signerVerifier{pub: k}
	}
	ev, err := dsse.NewEnvelopeVerifier(verifiers...)
	if err != nil {
		return nil, "", err
	}
	accepted, payload, err := ev.VerifyAndDecode(ctx, env)
	if err != nil {
		return nil, "", err
	}
	return payload, accepted[0].KeyID, nil
}

func check(spec JobSpec, want Expect, now time.Time) error {
	switch {
	case spec.Runner != want.Runner:
		return refuse(fairlead.ReasonSpecRunner, "the job spec is for runner %s, but this is runner %s", spec.Runner, want.Runner)
	case spec.InstallName != want.Install:
		return refuse(fairlead.ReasonSpecInstall, "the job spec is for install %q, but the claim was for %q", spec.InstallName, want.Install)
	case want.InstallID != "" && spec.Install != want.InstallID:
		return refuse(fairlead.ReasonSpecInstall, "the job spec is for install %s, but the claim was for %s", spec.Install, want.InstallID)
	case spec.Job != want.Job:
		return refuse(fairlead.ReasonSpecJob, "the job spec is for job %s, but the claim was for %s", spec.Job, want.Job)
	case spec.Epoch != want.Epoch:
		return refuse(fairlead.ReasonSpecEpoch, "the job spec is for epoch %d, but the claim was for %d", spec.Epoch, want.Epoch)
	case spec.Operation != want.Operation:
		return refuse(fairlead.ReasonSpecOperation, "the job spec is for operation %s, but the claim was for %s", spec.Operation, want.Operation)
	case spec.Image != want.Image:
		return refuse(fairlead.ReasonSpecImage, "the job spec is for a step in %s, but this step runs in %s. Nothing was started", imageName(spec.Image), imageName(want.Image))
	case now.After(spec.ExpiresAt.Add(clockSkew)):
		return refuse(fairlead.ReasonSpecExpired, "the job spec expired at %s", spec.ExpiresAt.UTC().Format(time.RFC3339))
	case now.Add(clockSkew).Before(spec.IssuedAt):
		return refuse(fairlead.ReasonSpecExpired, "the job spec was issued at %s, which is in the future for this runner: check its clock", spec.IssuedAt.UTC().Format(time.RFC3339))
	}
	if spec.Version != nil {
		if err := spec.Version.check(spec); err != nil {
			return err
		}
	}
	for _, op := range want.Operations {
		if op == spec.Operation {
			return nil
		}
	}
	return refuse(fairlead.ReasonSpecOperation, "this runner's %s plugin does not support %q", spec.Plugin, spec.Operation)
}

// imageName names an image in a message.
func imageName(image string) string {
	if image == "" {
		return "the runner's image"
	}
	return fmt.Sprintf("the image %.300q", image)
}

// signerVerifier adapts Ed25519 to package dsse. In a verifier, key and remote are nil.
type signerVerifier struct {
	key    ed25519.PrivateKey
	remote func(ctx context.Context, message []byte) ([]byte, error)
	whole  bool // remote signs the data itself, if it is small enough, and the signature has no key ID
	pub    ed25519.PublicKey
}

// maxMessage is the size of the largest message that a remote key signs, in bytes.
const maxMessage = 4096

func (s signerVerifier) Sign(ctx context.Context, data []byte) ([]byte, error) {
	if s.remote == nil {
		return ed25519.Sign(s.key, data), nil
	}
	message := data
	if !s.whole || len(data) > maxMessage {
		message = digestMessage(data)
	}
	sig, err := s.remote(ctx, message)
	if err != nil {
		return nil, err
	}
	// If the service returned an invalid signature, every step would refuse its spec.
	return sig, s.Verify(ctx, data, sig)
}

// digestMessage returns the message that a remote key signs instead of data. data always begins with "DSSEv1 ", DSSE's
// prefix, and the message has another prefix. So a signature of the message is never valid as a signature of data.
func digestMessage(data []byte) []byte {
	sum := sha512.Sum512(data)
	return append([]byte("fairlead sha512 v1\n"), sum[:]...)
}

// Verify accepts a signature of data or of its digestMessage.
func (s signerVerifier) Verify(_ context.Context, data, sig []byte) error {
	if len(s.pub) != ed25519.PublicKeySize || !ed25519.Verify(s.pub, data, sig) && !ed25519.Verify(s.pub, digestMessage(data), sig) {
		return errors.New("signature does not verify")
	}
	return nil
}

// KeyID returns "" for the signature of a statement: verifiers of others compare a key ID with one of their own form, and
// then refuse the signature.
func (s signerVerifier) KeyID() (string, error) {
	if s.whole {
		return "", nil
	}
	return KeyID(s.pub), nil
}

func (s signerVerifier) Public() crypto.PublicKey { return s.pub }
