package wire

import (
	"encoding/json"
	"time"
)

// PublishVersionRequest publishes an immutable app version. Publishing the
// same content again returns the existing version.
type PublishVersionRequest struct {
	Config    json.RawMessage   `json:"config" doc:"The app's configuration in canonical JSON"`
	Artifacts map[string]string `json:"artifacts" keys:"name" form:"digest" doc:"Digest of each component's source artifact, by component; not of components that are built"`
	Builds    map[string]string `json:"builds,omitempty" keys:"name" doc:"ID of the job that built each built component, by component. A component of an earlier build may be absent"`
	Folders   map[string]string `json:"folders,omitempty" keys:"name" form:"digest" doc:"Digest of the packed folder of each component that is built from the app's folder, by component"`
	Name      string            `json:"name,omitempty" maxLength:"64" form:"version-name" doc:"Name for the version, such as v1.4.0. If another version of the app has it, the request is refused and nothing is published"`
}

// BuildAppRequest requests builds of an app's components.
type BuildAppRequest struct {
	Config  json.RawMessage   `json:"config" doc:"The app's configuration in canonical JSON"`
	Folders map[string]string `json:"folders,omitempty" keys:"name" form:"digest" doc:"Digest of the packed folder of each component that is built from the app's folder, by component. The caller has pushed it as the component's artifact"`
}

// AppBuilds are the builds of an app's components. Components that are packed from the
// app's folder are absent.
type AppBuilds struct {
	Builds []ComponentBuild `json:"builds" nullable:"false"`
}

// ComponentBuild is the build of one component.
type ComponentBuild struct {
	Component string `json:"component"`
	Job       *Job   `json:"job,omitempty" doc:"The job that builds it; absent if an earlier build of the same commit has its artifact"`
	Artifact  string `json:"artifact,omitempty" doc:"Digest of the artifact of the earlier build"`
	Revision  string `json:"revision,omitempty" doc:"Commit or digest that the earlier build has built"`
}

// JobBuild is what a build job makes.
type JobBuild struct {
	App       string `json:"app"`
	Component string `json:"component"`
	URL       string `json:"url" doc:"URL of the git repository, of the repository of charts or of the OCI artifact, or address of the module in its registry; empty if the source is in the app's folder"`
	Chart     string `json:"chart,omitempty" doc:"Name of the chart in a repository of charts"`
	Ref       string `json:"ref" doc:"Commit, tag or branch that the app names, version of the chart or module, or digest of the OCI artifact"`
	Revision  string `json:"revision,omitempty" doc:"Commit that was built, digest of the archive of the chart or module, or digest of the OCI artifact"`
	Artifact  string `json:"artifact,omitempty" doc:"Digest of the artifact that the build made"`
}

// RegistryAccessRequest requests access to the registry, to push the artifacts
// of components.
type RegistryAccessRequest struct {
	Components []string `json:"components" minItems:"1" maxItems:"200" nullable:"false" form:"name" doc:"Names of the app's components"`
}

// RegistryAccess names the repositories for an app's artifacts, and the login.
type RegistryAccess struct {
	Registry     string            `json:"registry" doc:"Host and port of the OCI registry"`
	Repositories map[string]string `json:"repositories" doc:"Repository by component; artifacts that builds make are in its repository built, as in REPOSITORY/built"`
	Images       map[string]string `json:"images,omitempty" doc:"Repository by component of the images that builds make of a Dockerfile; absent if they are where other built artifacts are"`
	Login        *RegistryLogin    `json:"login,omitempty" doc:"Absent if the caller's API token is the login"`
}

// RegistryLogin is a short-lived login to an OCI registry.
type RegistryLogin struct {
	Username  string    `json:"username"`
	Password  string    `json:"password"`
	ExpiresAt time.Time `json:"expires_at" doc:"When the login expires; request another before that"`
}

// App is an app and its newest version.
type App struct {
	Actors
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Version     AppVersion `json:"version" doc:"The newest version"`
	CreatedAt   time.Time  `json:"created_at"`
}

// AppVersion is an immutable version of an app.
type AppVersion struct {
	Actors
	ID         string         `json:"id"`
	Names      []string       `json:"names,omitempty" doc:"Names of the version, in the order in which they were given"`
	App        string         `json:"app" doc:"Name of the app"`
	CreatedAt  time.Time      `json:"created_at"`
	New        bool           `json:"new,omitempty" doc:"Whether this request created the version"`
	Inputs     []AppInput     `json:"inputs" nullable:"false"`
	Components []AppComponent `json:"components" nullable:"false"`
	// InputGroups are in the order in which people see them.
	InputGroups []InputGroup `json:"input_groups,omitempty" doc:"Groups of inputs, in the order in which to show them"`
	Sandbox     *AppSandbox  `json:"sandbox,omitempty" doc:"What the app's installs stand on"`
	// RunnerKinds are kinds of package runnerspec.
	RunnerKinds []string `json:"runner_kinds,omitempty" doc:"The kinds of runners that the version can use; absent: every kind"`

	Config  json.RawMessage `json:"config,omitempty" doc:"The app's configuration in canonical JSON; on single versions only"`
	Actions []AppAction     `json:"actions,omitempty" doc:"What can be run on an install"`
}

// Provenance is what a build did. The control plane signed it.
type Provenance struct {
	App           string    `json:"app"`
	Version       string    `json:"version" doc:"ID of the app's version"`
	Component     string    `json:"component"`
	Type          string    `json:"type" doc:"Type of the component"`
	Source        string    `json:"source" doc:"Folder of the component in what was fetched"`
	Artifact      string    `json:"artifact" doc:"Digest of the artifact that the build made"`
	URL           string    `json:"url" doc:"URL of the git repository, or of the repository of charts; empty if the source is in the app's folder"`
	Chart         string    `json:"chart,omitempty" doc:"Name of the chart in a repository of charts"`
	Ref           string    `json:"ref" doc:"Commit, tag or branch that the app names, or version of the chart"`
	Revision      string    `json:"revision" doc:"Commit that was built, or digest of the chart's archive"`
	Runner        string    `json:"runner" doc:"ID of the build runner"`
	RunnerVersion string    `json:"runner_version" doc:"Version of the build runner's program"`
	BuildJob      string    `json:"build_job" doc:"Job that built the artifact"`
	StartedAt     time.Time `json:"started_at" doc:"By the clock of the build runner"`
	FinishedAt    time.Time `json:"finished_at" doc:"By the clock of the build runner"`

	KeyID string `json:"key_id" doc:"ID of the control plane's key that signed it, as in GET /v1/meta"`

	Envelope json.RawMessage `json:"envelope" doc:"The DSSE envelope of the in-toto statement: payload type application/vnd.in-toto+json, signed with Ed25519"`
}

// AppInput is an input that an app declares.
type AppInput struct {
	Name            string          `json:"name"`
	Type            string          `json:"type"`
	Description     string          `json:"description,omitempty"`
	Required        bool            `json:"required"`
	Sensitive       bool            `json:"sensitive"`
	Generated       bool            `json:"generated,omitempty" doc:"Whether an install without a value gets a random one"`
	GeneratedLength int             `json:"generated_length,omitempty" doc:"Number of the letters and digits of this value"`
	Default         json.RawMessage `json:"default,omitempty"`
	Group           string          `json:"group,omitempty" doc:"Name of its input group"`
	From            string          `json:"from,omitempty" enum:"customer" doc:"customer if the customer gives the value; absent for the vendor"`
}

// InputGroup is a group of inputs that belong together.
type InputGroup struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
}

// MissingInput is a required input that an install does not set.
type MissingInput struct {
	Name        string `json:"name"`
	From        string `json:"from" enum:"vendor,customer" doc:"Who gives the value"`
	Group       string `json:"group,omitempty" doc:"Name of its input group"`
	Description string `json:"description,omitempty"`
}

// AppComponent is a component of an app version.
type AppComponent struct {
	Name      string       `json:"name"`
	Type      string       `json:"type"`
	DependsOn []string     `json:"depends_on" nullable:"false"`
	Artifact  string       `json:"artifact" doc:"Digest of the source artifact"`
	Built     *BuiltSource `json:"built,omitempty" doc:"Where a build took the source from; absent: the app's folder has it"`
	Switch    string       `json:"switch,omitempty" doc:"Name of the input that switches the component on and off"`
}

// BuiltSource is a component's source in a git repository, a repository of charts, a module registry or an OCI registry.
type BuiltSource struct {
	Kind     string `json:"kind" doc:"git, chart, module, oci, or folder: the app's folder"`
	URL      string `json:"url" doc:"URL of the git repository, of the repository of charts or of the OCI artifact, or address of the module in its registry; empty if the source is in the app's folder"`
	Chart    string `json:"chart,omitempty" doc:"Name of the chart in a repository of charts"`
	Ref      string `json:"ref" doc:"Commit, tag or branch that the app names, version of the chart or module, or digest of the OCI artifact"`
	Revision string `json:"revision" doc:"Commit that was built, digest of the archive of the chart or module, or digest of the OCI artifact"`
	BuildJob string `json:"build_job" doc:"Job that built the artifact"`
}

// AppSandbox is what an app's installs stand on.
type AppSandbox struct {
	Kind             string `json:"kind" doc:"Kind of the sandbox"`
	CreatedBy        string `json:"created_by,omitempty" doc:"The component that creates it; absent: it exists already"`
	RunnerDeployedBy string `json:"runner_deployed_by,omitempty" doc:"The component that deploys a runner into it; absent: none"`
}
