package deployment_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/fairlead/fairlead/tools/deployment"
)

const (
	stackName   = "fairlead-test"
	digest      = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	shellDigest = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	// The SHA-256 of the template "{}".
	templateDigest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	atURL          = "https://fairlead.example.com"
)

// account simulates an AWS account with one stack, and the programs that a deployment
// runs. The image and the template are published already, and the CLI is logged in. Like
// the real CDK, the simulated CDK deletes a stack whose creation was rolled back, and
// turns termination protection on before it creates another stack.
type account struct {
	t         *testing.T
	status    string // of the stack; "": the stack does not exist
	protected bool   // the stack has termination protection
	fails     bool   // the creation of a stack fails
	failsAt   int    // the "cdk deploy" that fails; 0: none
	did       []string
	synths    [][]string // arguments of each "cdk synth"
	root      string
	values    map[string]string            // of the stack's parameters, which a deployment without them keeps
	deployed  [][]string                   // parameters of each "cdk deploy"
	quota     int                          // Lambda's concurrent executions; 0: 1,000
	bootstrap string                       // version of the CDK's bootstrap stack; "": 30
	restored  string                       // DynamoDB's description of the restored table
	role      bool                         // the caller is a session of a role with a path, not a user
	forbids   []string                     // actions that the organization's service control policies forbid; nil: there is no organization
	mute      bool                         // the caller may not simulate policies
	tags      []string                     // of the images that the registry was asked for
	public    map[string]ed25519.PublicKey // of each KMS key that the caller may read, by ARN
	simulated []string                     // the actions that were simulated
	spare     spareRegion
	replicas  string              // the keys of the spare stack in the control plane's Region; "": there is none
	backups   map[string][]string // of a Region: the settings of AWS Backup for DynamoDB that are off, "opt-in" and "management"
	settings  []string            // the Regions whose settings of AWS Backup were read
	silent    bool                // the caller may not read the settings of AWS Backup
	noDebian  bool                // Debian's packages cannot be downloaded
	mails     map[string]string   // SNS's ARN of each subscription, by address; an address that is not in it was not asked yet
}

// spareRegion simulates another Region of the account.
type spareRegion struct {
	status    string            // of the spare stack; "": it does not exist
	prepared  bool              // "cdk bootstrap" has prepared the Region
	protected bool              // the spare stack has termination protection
	fails     bool              // a deployment of the spare stack fails
	values    map[string]string // of its parameters
	asked     []string          // the actions that were simulated for the Region
}

const (
	spareName  = stackName + "-spare"
	spareIn    = "eu-west-1"
	spareParts = "eu-west-1/vault/spare-blobs/spare-archive"
)

// serveSpare answers for the spare Region.
func (a *account) serveSpare(w http.ResponseWriter, r *http.Request) {
	switch action, name := r.FormValue("Action"), r.FormValue("StackName"); {
	case action == "DescribeStacks" && name == "CDKToolkit" && a.spare.prepared:
		a.describe(w, name, "CREATE_COMPLETE", map[string]string{"BootstrapVersion": "30"}, nil)
	case action == "DescribeStacks" && name == spareName && a.spare.status != "":
		a.describe(w, name, a.spare.status, map[string]string{"VaultName": "vault", "BlobsBucket": "spare-blobs", "LogArchiveBucket": "spare-archive"}, a.spare.values)
	case action == "DescribeStacks":
		absent(w, name)
	case action == "UpdateTerminationProtection" && name == spareName:
		a.spare.protected = r.FormValue("EnableTerminationProtection") == "true"
		a.did = append(a.did, "unprotect "+name)
		fmt.Fprint(w, `<UpdateTerminationProtectionResponse><UpdateTerminationProtectionResult/></UpdateTerminationProtectionResponse>`)
	case action == "SimulatePrincipalPolicy":
		a.simulate(w, r)
	default:
		a.t.Errorf("unexpected request to AWS in the spare region: %s of %q", action, name)
		w.WriteHeader(http.StatusBadRequest)
	}
}

// runSpare runs the CDK in the spare Region.
func (a *account) runSpare(c deployment.Command) error {
	switch c.Args[3] {
	case "bootstrap":
		a.did, a.spare.prepared = append(a.did, "cdk bootstrap "+c.Args[4]), true
	case "deploy":
		a.did = append(a.did, "cdk deploy "+c.Args[4])
		if !a.spare.prepared || a.spare.status == "ROLLBACK_COMPLETE" && a.spare.protected {
			return errRefused
		}
		if a.spare.fails {
			a.spare.status, a.spare.protected = "ROLLBACK_COMPLETE", true
			return errRolledBack
		}
		a.spare.status, a.spare.values = "CREATE_COMPLETE", map[string]string{}
		for i, arg := range c.Args {
			if arg == "--parameters" {
				name, value, _ := strings.Cut(strings.TrimPrefix(c.Args[i+1], spareName+":"), "=")
				a.spare.values[name] = value
			}
		}
	}
	return nil
}

// serveBackups answers as the API reference of AWS Backup describes: with the types of resources of the account's Region.
func (a *account) serveBackups(w http.ResponseWriter, r *http.Request) {
	if a.silent {
		w.Header().Set("X-Amzn-Errortype", "AccessDeniedException")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"Message":"not authorized to perform: backup:DescribeRegionSettings"}`)
		return
	}
	_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	region := strings.Split(scope, "/")[2]
	a.settings = append(a.settings, region)
	on := func(setting string) bool { return !slices.Contains(a.backups[region], setting) }
	fmt.Fprintf(w, `{"ResourceTypeManagementPreference":{"DynamoDB":%t,"EFS":true},"ResourceTypeOptInPreference":{"DynamoDB":%t,"EFS":false}}`, on("management"), on("opt-in"))
}

func absent(w http.ResponseWriter, name string) {
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>Stack with id %s does not exist</Message></Error></ErrorResponse>`, name)
}

func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".DescribeTable"):
		fmt.Fprint(w, a.restored)
		return
	case strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetPublicKey"):
		a.publicKey(w, r)
		return
	case r.Header.Get("X-Amz-Target") != "": // ECR
		login := base64.StdEncoding.EncodeToString([]byte("AWS:password"))
		fmt.Fprintf(w, `{"authorizationData":[{"authorizationToken":%q}]}`, login)
		return
	case r.URL.Path == "/account-settings": // AWS Backup
		a.serveBackups(w, r)
		return
	case r.Method == http.MethodHead: // S3 has the template
		return
	case strings.HasSuffix(r.URL.Path, "/account-settings"): // Lambda
		n := cmp.Or(a.quota, 1000)
		fmt.Fprintf(w, `{"AccountLimit":{"ConcurrentExecutions":%d,"UnreservedConcurrentExecutions":%d}}`, n, n)
		return
	}
	// A request names its Region in its signature.
	if strings.Contains(r.Header.Get("Authorization"), "/"+spareIn+"/") {
		a.serveSpare(w, r)
		return
	}
	switch action, name := r.FormValue("Action"), r.FormValue("StackName"); {
	case action == "GetCallerIdentity" && a.role:
		fmt.Fprint(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Account>111122223333</Account><Arn>arn:aws:sts::111122223333:assumed-role/Admin_1234/alice</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`)
	case action == "GetRole":
		fmt.Fprintf(w, `<GetRoleResponse><GetRoleResult><Role><Path>/sso/</Path><RoleName>%[1]s</RoleName><RoleId>AROAEXAMPLEEXAMPLE001</RoleId><Arn>arn:aws:iam::111122223333:role/sso/%[1]s</Arn><CreateDate>2026-11-22T16:10:00Z</CreateDate></Role></GetRoleResult></GetRoleResponse>`, r.FormValue("RoleName"))
	case action == "SimulatePrincipalPolicy":
		a.simulate(w, r)
	case action == "GetCallerIdentity":
		fmt.Fprint(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Account>111122223333</Account><Arn>arn:aws:iam::111122223333:user/alice</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`)
	case action == "DescribeStacks" && name == "CDKToolkit":
		a.describe(w, name, "CREATE_COMPLETE", map[string]string{"BootstrapVersion": cmp.Or(a.bootstrap, "30")}, nil)
	case action == "DescribeStacks" && name == spareName && a.replicas != "": // of another Region's control plane
		a.describe(w, name, "CREATE_COMPLETE", nil, map[string]string{"PrimaryKeys": a.replicas})
	case action == "DescribeStacks" && name == spareName:
		absent(w, name)
	case action == "DescribeStacks" && a.status != "":
		outputs := map[string]string{}
		if !strings.HasPrefix(a.status, "ROLLBACK") {
			outputs = map[string]string{"TemplateBucket": "templates", "RunnerRepository": "registry.example/runner", "URL": atURL,
				"SigningKeyArn": keyARN(1), "SpareSigningKeyArn": keyARN(2), "KeyIds": "the keys", "BlobsBucket": "blobs", "LogArchiveBucket": "archive", "AlarmTopic": alarmTopic}
		}
		if a.values["SignsWith"] == "Spare" && outputs["SigningKeyArn"] != "" {
			outputs["SigningKeyArn"], outputs["SpareSigningKeyArn"] = keyARN(2), keyARN(1)
		}
		a.describe(w, name, a.status, outputs, a.values)
	case action == "DescribeStacks":
		absent(w, name)
	case action == "ListSubscriptionsByTopic":
		if got := r.FormValue("TopicArn"); got != alarmTopic {
			a.t.Errorf("the subscriptions of %q were read", got)
		}
		a.subscriptions(w)
	case action == "UpdateTerminationProtection" && name == stackName:
		a.protected = r.FormValue("EnableTerminationProtection") == "true"
		a.did = append(a.did, fmt.Sprint("termination protection: ", a.protected))
		fmt.Fprint(w, `<UpdateTerminationProtectionResponse><UpdateTerminationProtectionResult/></UpdateTerminationProtectionResponse>`)
	default:
		a.t.Errorf("unexpected request to AWS: %s of %q", action, name)
		w.WriteHeader(http.StatusBadRequest)
	}
}

const alarmTopic = "arn:aws:sns:eu-central-1:111122223333:alarms"

// subscriptions answers as SNS does. As CloudFormation does, the account has a subscription of the address in the
// stack's parameter, which waits for its confirmation.
func (a *account) subscriptions(w http.ResponseWriter) {
	all := maps.Clone(a.mails)
	if mail := a.values["AlarmEmail"]; all == nil && mail != "" && mail != "none" {
		all = map[string]string{mail: "PendingConfirmation"}
	}
	var members strings.Builder
	for mail, arn := range all {
		fmt.Fprintf(&members, `<member><TopicArn>%s</TopicArn><Protocol>email</Protocol><SubscriptionArn>%s</SubscriptionArn><Owner>111122223333</Owner><Endpoint>%s</Endpoint></member>`, alarmTopic, arn, mail)
	}
	fmt.Fprintf(w, `<ListSubscriptionsByTopicResponse><ListSubscriptionsByTopicResult><Subscriptions>%s</Subscriptions></ListSubscriptionsByTopicResult></ListSubscriptionsByTopicResponse>`, members.String())
}

func keyARN(n int) string {
	return fmt.Sprintf("arn:aws:kms:eu-central-1:111122223333:key/mrk-%032x", n)
}

// publicKey answers as KMS does: with the public key, or that the key does not exist or may not be read.
func (a *account) publicKey(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		KeyID string `json:"KeyId"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		a.t.Errorf("a request for a public key: %v", err)
	}
	key, ok := a.public[asked.KeyID]
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"__type":"NotFoundException","message":"the key does not exist"}`)
		return
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		a.t.Error(err)
	}
	fmt.Fprintf(w, `{"KeyId":%q,"PublicKey":%q}`, asked.KeyID, base64.StdEncoding.EncodeToString(der))
}

// simulate answers as the API reference of IAM describes: a result for each action, in pages. The caller's own policies allow
// nothing.
func (a *account) simulate(w http.ResponseWriter, r *http.Request) {
	if a.mute {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized to perform: iam:SimulatePrincipalPolicy</Message></Error></ErrorResponse>`)
		return
	}
	source := "arn:aws:iam::111122223333:user/alice"
	if a.role {
		source = "arn:aws:iam::111122223333:role/sso/Admin_1234"
	}
	if got := r.FormValue("PolicySourceArn"); got != source {
		a.t.Errorf("the policies of %s are simulated, want those of %s", got, source)
	}
	region := r.FormValue("ContextEntries.member.1.ContextKeyValues.member.1")
	if r.FormValue("ContextEntries.member.1.ContextKeyName") != "aws:RequestedRegion" || !slices.Contains([]string{"eu-central-1", spareIn}, region) {
		a.t.Errorf("the simulation has no region: %v", r.Form)
	}
	var results strings.Builder
	add := func(from, to int) (more bool) {
		for i := from; i <= to; i++ {
			action := r.FormValue(fmt.Sprintf("ActionNames.member.%d", i))
			if action == "" {
				return false
			}
			if region == spareIn {
				a.spare.asked = append(a.spare.asked, action)
			} else {
				a.simulated = append(a.simulated, action)
			}
			organization := ""
			if a.forbids != nil {
				organization = fmt.Sprintf(`<OrganizationsDecisionDetail><AllowedByOrganizations>%t</AllowedByOrganizations></OrganizationsDecisionDetail>`, !slices.Contains(a.forbids, action))
			}
			fmt.Fprintf(&results, `<member><EvalActionName>%s</EvalActionName><EvalResourceName>*</EvalResourceName><EvalDecision>implicitDeny</EvalDecision>%s</member>`, action, organization)
		}
		return true
	}
	marker := `<IsTruncated>false</IsTruncated>`
	if r.FormValue("Marker") != "" {
		add(6, 1000)
	} else if add(1, 5) {
		marker = `<IsTruncated>true</IsTruncated><Marker>more</Marker>`
	}
	fmt.Fprintf(w, `<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>%s</EvaluationResults>%s</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>`, results.String(), marker)
}

func (a *account) describe(w http.ResponseWriter, name, status string, outputs, parameters map[string]string) {
	var members, values strings.Builder
	for key, value := range outputs {
		fmt.Fprintf(&members, `<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>`, key, value)
	}
	for key, value := range parameters {
		fmt.Fprintf(&values, `<member><ParameterKey>%s</ParameterKey><ParameterValue>%s</ParameterValue></member>`, key, value)
	}
	fmt.Fprintf(w, `<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>%s</StackName><StackStatus>%s</StackStatus><CreationTime>2026-11-22T16:10:00Z</CreationTime><Outputs>%s</Outputs><Parameters>%s</Parameters></member></Stacks></DescribeStacksResult></DescribeStacksResponse>`,
		name, status, members.String(), values.String())
}

var (
	errRolledBack = errors.New("the creation of the stack was rolled back")
	errRefused    = errors.New("TerminationProtection is enabled")
	errNoDebian   = errors.New("download of a package: no route to host")
)

func (a *account) run(_ context.Context, c deployment.Command) ([]byte, error) {
	switch {
	case a.noDebian && slices.Contains(c.Args, "-shell"):
		return nil, errNoDebian
	case c.Args[0] == "go" && slices.Contains(c.Args, "-shell"):
		return []byte(shellDigest + "\n"), nil
	case c.Args[0] == "go":
		return []byte(digest + "\n"), nil
	case c.Args[0] != "npx": // the CLI is logged in
		return []byte(`{"URL":"` + atURL + `"}`), nil
	case slices.Contains(c.Env, "AWS_REGION="+spareIn):
		return nil, a.runSpare(c)
	case c.Args[3] == "synth":
		a.synths = append(a.synths, c.Args)
		folder := filepath.Join(a.root, "bin", "infra")
		return nil, errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "fairlead-runner.yaml"), []byte("{}"), 0o644))
	}
	if c.Args[3] == "bootstrap" {
		a.did, a.bootstrap = append(a.did, "cdk bootstrap"), "30"
		return nil, nil
	}
	a.did = append(a.did, "cdk deploy")
	var parameters []string
	for i, arg := range c.Args {
		if arg == "--parameters" {
			parameters = append(parameters, c.Args[i+1])
		}
	}
	a.deployed = append(a.deployed, parameters)
	if len(a.deployed) == a.failsAt {
		return nil, errRefused
	}
	if a.values == nil {
		a.values = map[string]string{}
	}
	for _, p := range parameters {
		name, value, _ := strings.Cut(strings.TrimPrefix(p, stackName+":"), "=")
		if value != "" { // the CDK's CLI keeps the previous value
			a.values[name] = value
		}
	}
	if a.status != "" && strings.HasPrefix(a.status, "ROLLBACK") {
		if a.protected {
			return nil, errRefused
		}
		a.status = ""
	}
	a.protected = true
	switch {
	case a.status != "":
		a.status = "UPDATE_COMPLETE"
	case a.fails:
		a.status = "ROLLBACK_COMPLETE"
		return nil, errRolledBack
	default:
		a.status = "CREATE_COMPLETE"
	}
	return nil, nil
}

// RoundTrip answers as a registry that has the image.
func (a *account) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a.tags = append(a.tags, path.Base(r.URL.Path))
	w.Header().Set("Docker-Content-Digest", "sha256:"+path.Base(r.URL.Path))
	w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	w.Header().Set("Content-Length", "2")
	out := w.Result()
	out.Request, out.ContentLength = r, 2
	return out, nil
}

// deployment returns a deployment to the account, and its output.
func (a *account) deployment(t *testing.T) (*deployment.Deployment, *bytes.Buffer) {
	t.Helper()
	a.t, a.root = t, t.TempDir()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	out := &bytes.Buffer{}
	alarms, budget := "", ""
	if a.status == "" || strings.HasPrefix(a.status, "ROLLBACK") { // the first deployment must say who gets alarms, and what the account may cost
		alarms, budget = deployment.NoAlarmEmail, deployment.NoBudget
	}
	return &deployment.Deployment{Options: deployment.Options{Stage: "test", Operator: "alice", Version: "v1.2.3", Yes: true, AlarmEmail: alarms, Budget: budget}, Root: a.root, Run: a.run, Remote: a, Out: out,
		Config: aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(server.URL), RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", "")}}, out
}

// If the first deployment is rolled back, it leaves a stack that can only be deleted, and
// that has termination protection. Without the call of unprotect, the CDK could never
// delete the stack.
func TestFailedFirstDeploymentIsRepeatable(t *testing.T) {
	a := &account{fails: true}
	d, out := a.deployment(t)
	if err := d.Do(t.Context()); !errors.Is(err, errRolledBack) {
		t.Fatalf("got %v, want the stack rolled back", err)
	}
	d.DryRun = true
	out.Reset()
	if err := d.Do(t.Context()); err != nil || !a.protected || !strings.Contains(out.String(), "ROLLBACK_COMPLETE") || !strings.Contains(out.String(), "create the stack "+stackName) {
		t.Errorf("a dry run must change nothing and print the steps: error %v, protected %t, output:\n%s", err, a.protected, out)
	}
	d.DryRun, a.fails = false, false
	for _, status := range []string{"ROLLBACK_COMPLETE", "ROLLBACK_FAILED"} {
		a.status, a.protected, a.did = status, true, nil
		out.Reset()
		if err := d.Do(t.Context()); err != nil {
			t.Errorf("after %s the command returns %v", status, err)
		}
		if want := []string{"termination protection: false", "cdk deploy", "cdk deploy"}; !slices.Equal(a.did, want) || !a.protected {
			t.Errorf("after %s the steps are %q, want %q; protected at the end: %t, want true", status, a.did, want, a.protected)
		}
		if !strings.Contains(out.String(), status) {
			t.Errorf("the output does not contain the status %s:\n%s", status, out)
		}
	}
}

// After its creation a stack keeps its termination protection, even if an update fails.
func TestCreatedStackKeepsItsProtection(t *testing.T) {
	for _, status := range []string{"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "UPDATE_ROLLBACK_FAILED"} {
		a := &account{status: status, protected: true}
		d, _ := a.deployment(t)
		if err := d.Do(t.Context()); err != nil || !slices.Equal(a.did, []string{"cdk deploy"}) {
			t.Errorf("%s: the steps are %q with error %v, want only cdk deploy", status, a.did, err)
		}
	}
}

// A rollback cannot remove protected tables. So a first run deploys the stack twice: once
// without deletion protection of the tables, and once with it. If the first run ends
// between the two deployments, the next run protects the tables.
func TestTablesAreProtectedAfterCreation(t *testing.T) {
	deletable := func(args []string) bool { return slices.Contains(args, "deletionProtection=false") }
	a := &account{}
	d, _ := a.deployment(t)
	if err := d.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(a.synths) != 2 || !deletable(a.synths[0]) || deletable(a.synths[1]) {
		t.Errorf("the CDK was called with %q, want deletionProtection=false only in the first of two calls", a.synths)
	}
	a.synths, a.status = nil, "CREATE_COMPLETE" // as if the first run had ended between the two deployments
	if err := d.Do(t.Context()); err != nil || len(a.synths) != 1 || deletable(a.synths[0]) {
		t.Errorf("the next run called the CDK with %q and returned %v, want one call without deletionProtection=false", a.synths, err)
	}
}

// A deployment without a table keeps the restored table. Without its stream, which `ops
// restore` enables, the table is not deployed: the functions would refuse it.
func TestRestoredTableIsKept(t *testing.T) {
	const value = "other/stream/2026-11-25T19:30:00.000"
	a := &account{status: "CREATE_COMPLETE", restored: `{"Table":{"TableName":"other"}}`}
	d, out := a.deployment(t)
	d.Table = "other"
	if err := d.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "fairlead ops restore --stage test --region eu-central-1 --table other") || len(a.did) > 0 {
		t.Errorf("a table without a stream: error %v after %q, want the command that prepares it and no step", err, a.did)
	}
	a.restored = `{"Table":{"TableName":"other","StreamSpecification":{"StreamEnabled":true},"LatestStreamArn":"arn:aws:dynamodb:eu-central-1:111122223333:table/` + value + `"}}`
	for _, step := range []struct{ given, want string }{{"other", value}, {"", value}, {deployment.OwnTable, "none"}, {"", "none"}} {
		d.Table = step.given
		out.Reset()
		if err := d.Do(t.Context()); err != nil || a.values["RestoredTable"] != step.want || strings.Contains(out.String(), "serve the restored table other") != (step.want == value) {
			t.Errorf("with %q the functions serve %q, want %q; error %v, output:\n%s", step.given, a.values["RestoredTable"], step.want, err, out)
		}
	}
}

// A canary would keep nine of ten invocations on the old table for five minutes, or on a key that is lost. The synthesis
// without a canary must not stay: a plain "cdk deploy" would change the stack.
func TestSwitchGivesAllInvocationsAtOnce(t *testing.T) {
	const value = "other/stream/2026-11-25T19:30:00.000"
	a := &account{restored: `{"Table":{"TableName":"other","StreamSpecification":{"StreamEnabled":true},"LatestStreamArn":"arn:aws:dynamodb:eu-central-1:111122223333:table/` + value + `"}}`}
	d, out := a.deployment(t)
	d.AllAtOnce = true
	if err := d.Do(t.Context()); err != nil || len(a.did) != 2 || strings.Contains(fmt.Sprint(a.synths), "canary") {
		t.Fatalf("a new stack, which has no version to leave: the CDK was called with %q, error %v", a.synths, err)
	}
	for _, step := range []struct {
		what              string
		table, signs      string
		asked, fails, all bool
	}{
		{"a release", "", "", false, false, false},
		{"the restored table", "other", "", false, false, true},
		{"the same table again", "other", "", false, false, false},
		{"a release of the restored table", "", "", false, false, false},
		{"the spare key", "", "Spare", false, false, true},
		{"the same key again", "", "Spare", false, false, false},
		{"the stack's own table, and the command ends after the switch", deployment.OwnTable, "", false, true, true},
		{"the same command again", deployment.OwnTable, "", false, false, false},
		{"a fix on request", "", "", true, false, true},
		{"a release after the fix", "", "", false, false, false},
	} {
		d.Table, d.SignsWith, d.AllAtOnce = step.table, step.signs, step.asked
		a.synths, a.deployed, a.failsAt = nil, nil, 0
		if step.fails {
			a.failsAt = 2
		}
		out.Reset()
		if err := d.Do(t.Context()); (err != nil) != step.fails {
			t.Errorf("%s: %v", step.what, err)
		}
		var atOnce []bool
		for _, args := range a.synths {
			atOnce = append(atOnce, slices.Contains(args, "canary=false"))
		}
		want := []bool{false}
		if step.all {
			want = []bool{true, false}
		}
		if !slices.Equal(atOnce, want) || strings.Contains(out.String(), "at once, without a canary") != step.all {
			t.Errorf("%s: the updates without a canary are %t, want %t; output:\n%s", step.what, atOnce, want, out)
		}
		for _, parameters := range a.deployed {
			if !slices.Equal(parameters, a.deployed[0]) {
				t.Errorf("%s: the second update sets %q, want %q", step.what, parameters, a.deployed[0])
			}
		}
	}
}

// The key that signs stays the spare key until a deployment names the first key.
func TestSigningKeyIsKept(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE"}
	d, _ := a.deployment(t)
	for _, step := range []struct{ given, want string }{{"", "First none"}, {"Spare", "Spare none"}, {"", "Spare none"}, {keyARN(3), "Spare " + keyARN(3)}, {"", "Spare " + keyARN(3)}, {"First", "First none"}} {
		d.SignsWith = step.given
		if err := d.Do(t.Context()); err != nil || a.values["SignsWith"]+" "+a.values["LaterSigningKey"] != step.want {
			t.Errorf("with %q the stack signs with %q and the later key %q, want %q; error %v", step.given, a.values["SignsWith"], a.values["LaterSigningKey"], step.want, err)
		}
	}
	d.SignsWith, a.did = "Third", nil
	if err := d.Do(t.Context()); err == nil || len(a.did) > 0 {
		t.Errorf("a key that does not exist is accepted: %v, %q", err, a.did)
	}
}

// The spare stack needs the keys of the control plane's stack, and that stack needs the parts of the spare stack. A
// deployment does both in one run, from nothing or from an older release, and changes nothing when it is repeated.
func TestSpareRegionGetsItsStackFirst(t *testing.T) {
	a := &account{}
	d, out := a.deployment(t)
	d.SpareRegion, d.DryRun = spareIn, true
	if err := d.Do(t.Context()); err != nil || len(a.did) > 0 {
		t.Fatalf("a dry run did %q; error %v", a.did, err)
	}
	for _, want := range []string{"prepare the account for the CDK in region eu-west-1", "create the stack fairlead-test-spare in region eu-west-1", "copy the table there every hour"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the dry run does not print %q:\n%s", want, out)
		}
	}
	d.DryRun = false
	steps := []string{"cdk deploy", "cdk deploy", "cdk bootstrap aws://111122223333/eu-west-1", "cdk deploy " + spareName, "cdk deploy"}
	if err := d.Do(t.Context()); err != nil || !slices.Equal(a.did, steps) {
		t.Fatalf("the steps are %q, want %q; error %v", a.did, steps, err)
	}
	if want := map[string]string{"PrimaryRegion": "eu-central-1", "PrimaryKeys": "the keys", "PrimaryBlobs": "blobs", "PrimaryLogs": "archive"}; !maps.Equal(a.spare.values, want) {
		t.Errorf("the spare stack has the parameters %q, want %q", a.spare.values, want)
	}
	if a.values["SpareStack"] != spareParts {
		t.Errorf("the stack copies to %q, want %q", a.values["SpareStack"], spareParts)
	}
	if !slices.Contains(a.spare.asked, "kms:ReplicateKey") {
		t.Errorf("the preflight asked about the spare region only for %q", a.spare.asked)
	}
	a.did = nil
	if err := d.Do(t.Context()); err != nil || !slices.Equal(a.did, []string{"cdk deploy", "cdk deploy " + spareName}) || a.values["SpareStack"] != spareParts {
		t.Errorf("a repeated deployment did %q and copies to %q; error %v", a.did, a.values["SpareStack"], err)
	}
}

// A deployment without a spare Region keeps the copies, without a request to the other Region: it may be lost. After the
// copies were ended, the same Region can get them again without a step by hand.
func TestSpareRegionIsKept(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE", spare: spareRegion{prepared: true}}
	d, out := a.deployment(t)
	for _, step := range []struct {
		given, want, prints string
		steps               []string
	}{
		{"", "none", "copy nothing to another region: set SPARE_REGION=", []string{"cdk deploy"}},
		{spareIn, spareParts, "create the stack fairlead-test-spare", []string{"cdk deploy", "cdk deploy " + spareName, "cdk deploy"}},
		{"", spareParts, "go on with the copies in region eu-west-1", []string{"cdk deploy"}},
		{deployment.NoSpareRegion, "none", "fairlead-test-spare there stays with its copies and keys", []string{"cdk deploy"}},
		{"", "none", "", []string{"cdk deploy"}},
		{spareIn, spareParts, "update the stack fairlead-test-spare", []string{"cdk deploy", "cdk deploy " + spareName, "cdk deploy"}},
	} {
		d.SpareRegion, a.did = step.given, nil
		out.Reset()
		if err := d.Do(t.Context()); err != nil || a.values["SpareStack"] != step.want || !slices.Equal(a.did, step.steps) || !strings.Contains(out.String(), step.prints) {
			t.Errorf("with %q the stack copies to %q after %q, want %q after %q; error %v, output:\n%s", step.given, a.values["SpareStack"], a.did, step.want, step.steps, err, out)
		}
	}
	for _, refused := range []string{"eu-central-1", "Ireland", "eu-west-1a"} {
		d.SpareRegion, a.did = refused, nil
		if err := d.Do(t.Context()); err == nil || len(a.did) > 0 {
			t.Errorf("the spare region %s is accepted: %v, %q", refused, err, a.did)
		}
	}
}

// After the loss of a Region the stack is created in the spare Region with the replicas there. With keys of its own it could open
// nothing, and runners would refuse its jobs. A stack that exists never changes its keys.
func TestNewStackUsesTheReplicas(t *testing.T) {
	a := &account{replicas: "five replicas"}
	d, out := a.deployment(t)
	for _, step := range []string{"the creation", "an update", "an update after the spare stack was deleted"} {
		if err := d.Do(t.Context()); err != nil || a.values["ExistingKeys"] != "five replicas" {
			t.Errorf("%s: the stack uses %q; error %v", step, a.values["ExistingKeys"], err)
		}
		if !strings.Contains(out.String(), "use the replicas that the stack fairlead-test-spare of this region keeps") {
			t.Errorf("%s: the output does not name the replicas:\n%s", step, out)
		}
		out.Reset()
		if step == "an update" {
			a.replicas = ""
		}
	}
	own := &account{status: "CREATE_COMPLETE", replicas: "five replicas"}
	d, _ = own.deployment(t)
	if err := d.Do(t.Context()); err != nil || own.values["ExistingKeys"] != "none" {
		t.Errorf("a stack with keys of its own takes %q; error %v", own.values["ExistingKeys"], err)
	}
	failed := &account{status: "ROLLBACK_COMPLETE", replicas: "five replicas"}
	d, _ = failed.deployment(t)
	if err := d.Do(t.Context()); err != nil || failed.values["ExistingKeys"] != "five replicas" {
		t.Errorf("after a failed creation the stack uses %q; error %v", failed.values["ExistingKeys"], err)
	}
}

// The control plane does not copy to a spare stack that could not be created, and the next run creates it.
func TestFailedSpareStackIsRepeatable(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE", spare: spareRegion{prepared: true, fails: true}}
	d, _ := a.deployment(t)
	d.SpareRegion = spareIn
	if err := d.Do(t.Context()); !errors.Is(err, errRolledBack) || a.values["SpareStack"] != "none" {
		t.Errorf("got %v, want the spare stack rolled back; the control plane copies to %q", err, a.values["SpareStack"])
	}
	a.did, a.spare.fails = nil, false
	want := []string{"cdk deploy", "unprotect " + spareName, "cdk deploy " + spareName, "cdk deploy"}
	if err := d.Do(t.Context()); err != nil || !slices.Equal(a.did, want) || a.values["SpareStack"] != spareParts {
		t.Errorf("the next run did %q, want %q; error %v", a.did, want, err)
	}
}

// The build runner pins both signing keys. A deployment that cannot read the spare key goes on with a warning; without the key
// that will sign it stops, because the build runner would refuse each job. So a deployment can leave a key that is lost.
func TestBuildRunnerPinsBothKeys(t *testing.T) {
	signs, _, errSigns := ed25519.GenerateKey(nil)
	spare, _, errSpare := ed25519.GenerateKey(nil)
	if err := errors.Join(errSigns, errSpare); err != nil {
		t.Fatal(err)
	}
	first, second := base64.StdEncoding.EncodeToString(signs), base64.StdEncoding.EncodeToString(spare)
	for _, row := range []struct {
		what        string
		wants       string // SIGNS_WITH
		public      map[string]ed25519.PublicKey
		pins        string
		misses      string // the key that cannot be read
		warns, ends bool
	}{
		{"both keys can be read", "", map[string]ed25519.PublicKey{keyARN(1): signs, keyARN(2): spare}, first + "," + second, "", false, false},
		{"the spare key cannot be read", "", map[string]ed25519.PublicKey{keyARN(1): signs}, first, keyARN(2), true, false},
		{"the key that signs cannot be read", "", map[string]ed25519.PublicKey{keyARN(2): spare}, "", keyARN(1), false, true},
		{"the key that signs is lost, and the spare key shall sign", "Spare", map[string]ed25519.PublicKey{keyARN(2): spare}, second, keyARN(1), true, false},
		{"a key of the operator shall sign", keyARN(3), map[string]ed25519.PublicKey{keyARN(1): signs, keyARN(3): spare}, second, "", false, false},
		{"the spare key shall sign, and cannot be read", "Spare", map[string]ed25519.PublicKey{keyARN(1): signs}, "", keyARN(2), false, true},
	} {
		a := &account{status: "CREATE_COMPLETE", public: row.public, values: map[string]string{"BuildRunner": "run_" + strings.Repeat("0", 26)}}
		d, out := a.deployment(t)
		d.SignsWith = row.wants
		err := d.Do(t.Context())
		if (err != nil) != row.ends || a.values["BuildRunnerKeys"] != row.pins {
			t.Errorf("%s: the build runner pins %q, want %q; error %v", row.what, a.values["BuildRunnerKeys"], row.pins, err)
		}
		if row.ends && (len(a.did) > 0 || !strings.Contains(err.Error(), row.misses)) {
			t.Errorf("%s: the steps are %q with error %v, want none and the key's ARN", row.what, a.did, err)
		}
		if warned := strings.Contains(out.String(), "Warning: the build runner pins one signing key only: ") && strings.Contains(out.String(), row.misses); warned != row.warns {
			t.Errorf("%s: warned %t, want %t:\n%s", row.what, warned, row.warns, out)
		}
	}
}

// A deployment without a mail address for alarms keeps the address of the previous
// deployment. In the past it removed the subscription.
func TestAlarmEmailIsKept(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE"}
	d, out := a.deployment(t)
	for _, step := range []struct{ given, want, prints string }{
		{"", "", "send alarms to no one"},
		{"ops@example.com", "ops@example.com", "send alarms to ops@example.com"},
		{"", "ops@example.com", "send alarms to ops@example.com"},
		{"oncall@example.com", "oncall@example.com", "send alarms to oncall@example.com"},
		{deployment.NoAlarmEmail, "", "send alarms to no one"},
	} {
		d.AlarmEmail = step.given
		out.Reset()
		if err := d.Do(t.Context()); err != nil || a.values["AlarmEmail"] != cmp.Or(step.want, "none") || !strings.Contains(out.String(), step.prints) {
			t.Errorf("with %q alarms go to %q, want %q; error %v, output:\n%s", step.given, a.values["AlarmEmail"], step.want, err, out)
		}
	}
	d.AlarmEmail, a.did = "Ops <ops@example.com>", nil
	if err := d.Do(t.Context()); err == nil || len(a.did) > 0 {
		t.Errorf("an address with a name is accepted: %v, %q", err, a.did)
	}
}

// Alarms that reach no one are worse than none. The first deployment must say who gets them.
func TestFirstDeploymentAsksWhoGetsAlarms(t *testing.T) {
	for _, mail := range []string{deployment.NoAlarmEmail, "ops@example.com"} {
		a := &account{}
		d, out := a.deployment(t)
		d.AlarmEmail, d.DryRun = "", true
		if err := d.Do(t.Context()); err != nil || !strings.Contains(out.String(), "ask for ALARM_EMAIL=") {
			t.Errorf("a dry run: error %v, output:\n%s", err, out)
		}
		d.DryRun = false
		if err := d.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "ALARM_EMAIL=none") || len(a.did)+len(a.synths) > 0 {
			t.Errorf("without an address: error %v after the steps %q", err, a.did)
		}
		d.AlarmEmail = mail
		if err := d.Do(t.Context()); err != nil {
			t.Errorf("with %s: %v", mail, err)
		}
		d.AlarmEmail = "" // the next deployment keeps the choice
		if err := d.Do(t.Context()); err != nil || a.values["AlarmEmail"] != mail {
			t.Errorf("the next deployment: error %v, alarms go to %q, want %q", err, a.values["AlarmEmail"], mail)
		}
	}
}

// A cost that no one watches grows until the bill. The first deployment must name a budget, or none.
func TestFirstDeploymentAsksForABudget(t *testing.T) {
	for _, amount := range []string{deployment.NoBudget, "500"} {
		a := &account{}
		d, out := a.deployment(t)
		d.Budget, d.DryRun = "", true
		if err := d.Do(t.Context()); err != nil || !strings.Contains(out.String(), "ask for MONTHLY_BUDGET=") {
			t.Errorf("a dry run: error %v, output:\n%s", err, out)
		}
		d.DryRun = false
		if err := d.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "MONTHLY_BUDGET=none") || len(a.did)+len(a.synths) > 0 {
			t.Errorf("without an amount: error %v after the steps %q", err, a.did)
		}
		d.Budget = amount
		if err := d.Do(t.Context()); err != nil {
			t.Errorf("with %s: %v", amount, err)
		}
		d.Budget = "" // the next deployment keeps the choice
		if err := d.Do(t.Context()); err != nil || a.values["MonthlyBudget"] != amount {
			t.Errorf("the next deployment: error %v, the budget is %q, want %q", err, a.values["MonthlyBudget"], amount)
		}
	}
}

// SNS sends nothing to an address that has not confirmed. Each deployment says so, also a dry run.
func TestDeploymentReportsAnUnconfirmedAddress(t *testing.T) {
	const mail, confirmed = "ops@example.com", alarmTopic + ":1b2c"
	for _, row := range []struct {
		what, before string
		mails        map[string]string
		prints       string // "": no warning
	}{
		{"the first deployment", "none", nil, "has not confirmed"},
		{"not confirmed since", mail, map[string]string{mail: "PendingConfirmation"}, "has not confirmed"},
		{"confirmed", mail, map[string]string{mail: confirmed}, ""},
		{"another address has confirmed", mail, map[string]string{mail: "PendingConfirmation", "other@example.com": confirmed}, "has not confirmed"},
		{"AWS or a person removed it", mail, map[string]string{"other@example.com": confirmed}, "was removed"},
	} {
		a := &account{status: "CREATE_COMPLETE", values: map[string]string{"AlarmEmail": row.before}, mails: row.mails}
		d, out := a.deployment(t)
		d.AlarmEmail = mail
		d.DryRun = row.before == mail
		err := d.Do(t.Context())
		if n := strings.Count(out.String(), "Warning: alarms reach no one"); err != nil || n > 1 || (n == 1) != (row.prints != "") || !strings.Contains(out.String(), row.prints) {
			t.Errorf("%s: want the warning %q; error %v, output:\n%s", row.what, row.prints, err, out)
		}
	}
}

// A vendor with many customers opens image and template once, and adds no account after
// that.
func TestEveryAccountIsOneReader(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE"}
	d, out := a.deployment(t)
	for _, step := range []struct {
		customers, without []string
		want, prints       string
	}{
		{[]string{"444455556666", "111122223333"}, nil, "111122223333,444455556666", "let these accounts read both: 111122223333, 444455556666"},
		{[]string{deployment.AnyAccount}, nil, "any", "let every AWS account read both"},
		{[]string{"777788889999"}, nil, "any", "let every AWS account read both"},
		{[]string{"777788889999"}, []string{deployment.AnyAccount}, "777788889999", "let these accounts read both: 777788889999"},
		{nil, []string{"777788889999"}, "none", "let no other account read them"},
	} {
		d.Customers, d.Without = step.customers, step.without
		out.Reset()
		if err := d.Do(t.Context()); err != nil || a.values["RunnerReaders"] != step.want || !strings.Contains(out.String(), step.prints) {
			t.Errorf("with the customers %q, without %q, the readers are %q, want %q; error %v, output:\n%s", step.customers, step.without, a.values["RunnerReaders"], step.want, err, out)
		}
	}
	d.Customers, a.did = []string{"*"}, nil
	if err := d.Do(t.Context()); err == nil || len(a.did) > 0 {
		t.Errorf("the customer * is accepted: %v, %q", err, a.did)
	}
}

// A deployment without an amount keeps the budget of the previous deployment.
func TestMonthlyBudgetIsKept(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE"}
	d, out := a.deployment(t)
	for _, step := range []struct{ given, want, prints string }{
		{"", "none", "raise no alarm for what this account costs"},
		{"500", "500", "costs more than $500 a month"},
		{"", "500", "costs more than $500 a month"},
		{deployment.NoBudget, "none", "raise no alarm for what this account costs"},
	} {
		d.Budget = step.given
		out.Reset()
		if err := d.Do(t.Context()); err != nil || a.values["MonthlyBudget"] != step.want || !strings.Contains(out.String(), step.prints) {
			t.Errorf("with %q the budget is %q, want %q; error %v, output:\n%s", step.given, a.values["MonthlyBudget"], step.want, err, out)
		}
	}
	for _, refused := range []string{"0", "12.50", "$500"} {
		d.Budget, a.did = refused, nil
		if err := d.Do(t.Context()); err == nil || len(a.did) > 0 {
			t.Errorf("the amount %s is accepted: %v, %q", refused, err, a.did)
		}
	}
}

// A vendor deploys with `cdk deploy` after `make deploy`, without any of its arguments. In
// the past this revoked every customer's access to the image and the template. All that
// make deploy published must be in the parameters that CloudFormation keeps, and the
// synthesis must not depend on it.
func TestPlainDeployTakesNothingAway(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE"}
	d, _ := a.deployment(t)
	d.Customers, d.AlarmEmail, d.Budget = []string{"777788889999", "444455556666"}, "ops@example.com", "500"
	if err := d.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"RunnerDigest": digest, "TemplateDigest": templateDigest, "RunnerReaders": "444455556666,777788889999",
		"AlarmEmail": "ops@example.com", "BuildRunner": "none", "BuildRunnerKeys": "none", "DirectLaunch": "none", "ShellDigest": shellDigest, "ReservesConcurrency": "Yes", "MonthlyBudget": "500", "RestoredTable": "none", "SignsWith": "First", "LaterSigningKey": "none", "SpareStack": "none", "ExistingKeys": "none", "Version": "v1.2.3"}
	if !maps.Equal(a.values, want) {
		t.Errorf("the account keeps the parameters %q, want %q", a.values, want)
	}
	var context []string
	for i, arg := range a.synths[len(a.synths)-1] {
		if arg == "-c" {
			key, _, _ := strings.Cut(a.synths[len(a.synths)-1][i+1], "=")
			context = append(context, key)
		}
	}
	if want := []string{"stage", "functions"}; !slices.Equal(context, want) { // cdk.json has both
		t.Errorf("the synthesis depends on %q, want only %q", context, want)
	}
	// The next run without options sets the same values.
	d.Customers, d.AlarmEmail, d.Budget = nil, "", ""
	if err := d.Do(t.Context()); err != nil || !slices.Equal(a.deployed[0], a.deployed[1]) {
		t.Errorf("a repeated deployment sets %q, want %q; error %v", a.deployed[1], a.deployed[0], err)
	}
}

// The preflight reads Lambda's quota and the version of the CDK's bootstrap stack. New
// accounts may run 10 functions at once, and AWS would refuse any reservation.
func TestPreflightFitsTheAccount(t *testing.T) {
	for _, row := range []struct {
		what             string
		quota            int
		bootstrap, kept  string
		reserves, prints string
		steps            []string
	}{
		{"a new account reserves nothing", 10, "", "", "No", "may run 10 Lambda functions at once", []string{"cdk deploy"}},
		{"a reservation must leave 100 executions", 704, "", "", "No", "quotas/L-B99A9384", []string{"cdk deploy"}},
		{"the default quota is enough", 1000, "", "", "Yes", "", []string{"cdk deploy"}},
		{"an earlier reservation is kept", 495, "", "Yes", "Yes", "", []string{"cdk deploy"}},
		{"an old bootstrap stack is updated", 1000, "5", "", "Yes", "prepare the account for the CDK", []string{"cdk bootstrap", "cdk deploy"}},
	} {
		a := &account{status: "CREATE_COMPLETE", quota: row.quota, bootstrap: row.bootstrap, values: map[string]string{"ReservesConcurrency": row.kept}}
		d, out := a.deployment(t)
		if err := d.Do(t.Context()); err != nil || a.values["ReservesConcurrency"] != row.reserves || !slices.Equal(a.did, row.steps) {
			t.Errorf("%s: reserved %s after %q with error %v, want %s after %q", row.what, a.values["ReservesConcurrency"], a.did, err, row.reserves, row.steps)
		}
		if !strings.Contains(out.String(), row.prints) || strings.Contains(out.String(), "Warning") != (row.reserves == "No") {
			t.Errorf("%s: the output is\n%s", row.what, out)
		}
	}
}

// The image with a shell is published beside the bare one, unless the operator leaves it out. The
// deployment and the stack name both. The stack of a customer starts the bare one.
func TestImageWithAShellIsPublishedBesideTheBareOne(t *testing.T) {
	a := &account{status: "CREATE_COMPLETE"}
	d, out := a.deployment(t)
	bare, shell := strings.TrimPrefix(digest, "sha256:"), strings.TrimPrefix(shellDigest, "sha256:")
	if err := d.Do(t.Context()); err != nil || !slices.Contains(a.tags, bare) || !slices.Contains(a.tags, shell) {
		t.Errorf("the images %q are published; error %v", a.tags, err)
	}
	for _, image := range []string{digest, shellDigest} {
		if !strings.Contains(out.String(), "registry.example/runner@"+image) {
			t.Errorf("the output does not name the image %s:\n%s", image, out)
		}
	}
	if a.values["RunnerDigest"] != digest || a.values["ShellDigest"] != shellDigest {
		t.Errorf("the stack's images are %s and %s, want the one without a shell first", a.values["RunnerDigest"], a.values["ShellDigest"])
	}

	a.tags = nil
	out.Reset()
	d.NoShell = true
	if err := d.Do(t.Context()); err != nil || slices.Contains(a.tags, shell) || a.values["ShellDigest"] != "none" || strings.Contains(out.String(), "with a shell") {
		t.Errorf("without the image with a shell, the images %q are published, the stack has %s; error %v, output:\n%s", a.tags, a.values["ShellDigest"], err, out)
	}

	d.NoShell = false
	a.noDebian = true
	if err := d.Do(t.Context()); !errors.Is(err, errNoDebian) || !strings.Contains(err.Error(), "WITH_SHELL=0") {
		t.Errorf("if Debian's packages cannot be downloaded, the error is %v, want a hint at WITH_SHELL=0", err)
	}
}
