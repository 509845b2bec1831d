package awstest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/functions/internal/iamtest"
	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/store/dynamo"
	"github.com/fairlead/fairlead/pkg/store/dynamo/dynamotest"
)

// A runner of a customer's stack applies a module while the stack of the control plane changes to a table that was restored from an
// earlier backup. From the change of the roles on, IAM lets no function use the old table, also the versions that serve it. Then the new
// versions refuse the apply's lease: its tool is stopped, and the module is planned before it is changed.
// TestApplyAcrossARestoreIsRefused has the parts that need no runner.
func TestRunnerIsStoppedAcrossARestore(t *testing.T) {
	skipIfShort(t)
	needTofu(t)
	a := deploy(t, releasedTemplate(t, released()))
	var front atomic.Value
	front.Store(a.front())
	w := connect(t, a, map[string]http.Handler{planeHost: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { front.Load().(http.Handler).ServeHTTP(rw, r) })}).operated()
	defer func() { w.close() }()
	gate := filepath.Join(t.TempDir(), "gate")
	w.ok("make a pipe", syscall.Mkfifo(gate, 0o600))
	const first = "resource \"terraform_data\" \"one\" {}\n"
	w.app("slow", map[string]string{"main.tf": first})
	m, ctx := w.measured("slow", "acme", nil), t.Context()
	defer m.stop()
	d, _ := m.deploy(ctx, false)
	if d = m.untilDone(ctx, d); d.State != "succeeded" {
		t.Fatalf("the first deployment is %s: %s", d.State, d.Message)
	}

	// A deployment waits for an approval when the backup is made. After it, the plan is approved and the apply begins.
	w.app("slow", map[string]string{"main.tf": first + fmt.Sprintf("resource \"terraform_data\" \"two\" {\n  provisioner \"local-exec\" {\n    command = \"read line < %s\"\n  }\n}\n", gate)})
	old, err := m.CreateDeployment(ctx, m.name, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true})
	w.ok("deploy the second version", err)
	w.eventually("a plan waits for an approval", func() bool {
		old, err = m.GetDeployment(ctx, old.ID)
		return err == nil && old.State == "awaiting-approval"
	})
	table := w.ref("Table")
	restored := table + "-restored"
	w.ok("restore the table", dynamotest.Restore(ctx, w.account.config("DYNAMODB"), table, w.account.config("DYNAMODB"), restored))
	_, err = m.ApproveDeployment(ctx, old.ID, wire.ApproveRequest{})
	w.ok("approve", err)
	var pipe *os.File
	reads := func() (yes bool) {
		pipe, err = os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails while no process reads
		return err == nil
	}
	w.eventually("the apply runs", reads)
	w.opsRestore(restored)

	// The update of the stack begins with the roles. The old versions are still invoked.
	w.close() // the event sources change with the functions
	w.given = map[string]string{"RestoredTable": restored + "/stream/2026-01-01T00:00:00.000"}
	w.guard.AddTable(restored, iamtest.Table{PartitionKey: dynamo.AttrPartition, Key: w.attribute("DataKey", "Arn")})
	w.refused.attack()
	w.addPolicies(w.resolver)
	if _, err := m.GetInstall(ctx, m.name); !client.HasStatus(err, http.StatusInternalServerError) {
		t.Errorf("a version that serves the old table answers %v, want that it cannot", err)
	}
	for _, one := range w.refused.list() {
		if !strings.HasSuffix(one.Resource, ":table/"+table) && !strings.Contains(one.Resource, ":table/"+table+"/") {
			t.Errorf("the change of the roles denies %s to %s on %s, want only the old table", one.Action, one.Principal, one.Resource)
		}
	}
	if w.refused.count() == 0 {
		t.Error("no function was denied the old table")
	}

	// The aliases move.
	for _, id := range w.tmpl.ofType("AWS::Lambda::Function") {
		w.lambda(id, w.tmpl.Resources[id].Properties)
	}
	w.openFunctions()
	w.reachSTS()
	front.Store(w.front())
	w.close = w.pumps()
	denied := w.refused.count()

	// The lease of the apply is refused, and its tool ends.
	pipe.Close()
	w.eventually("the tool of the apply is stopped", func() bool {
		open := reads()
		if open {
			pipe.Close()
		}
		return !open
	})
	w.eventually("the runner works with the restored table", func() bool { return ask[wire.Stack](w, "install", "stack", "acme").State == "online" })
	if old, err = m.GetDeployment(ctx, old.ID); err != nil || old.State != "canceled" {
		t.Errorf("the deployment of the backup is %s, %v", old.State, err)
	}
	if install := ask[wire.Install](w, "install", "show", "acme"); len(install.Components) != 1 || install.Components[0].State != "unknown" {
		t.Errorf("the install has the components %+v, want one that is unknown", install.Components)
	}

	// The runner plans first. Auto-approval does not cover what its plan finds.
	d, err = m.CreateDeployment(ctx, m.name, wire.CreateDeploymentRequest{Kind: "deploy", Refresh: true, AutoApprove: true})
	w.ok("deploy after the restore", err)
	w.eventually("the plan after the restore waits for an approval", func() bool {
		d, err = m.GetDeployment(ctx, d.ID)
		return err == nil && (d.State == "awaiting-approval" || d.Done())
	})
	_, err = m.ApproveDeployment(ctx, d.ID, wire.ApproveRequest{})
	w.ok("approve the plan after the restore", err)
	w.eventually("the apply after the restore runs", reads)
	_, err = pipe.WriteString("go\n")
	w.ok("let the apply end", errors.Join(err, pipe.Close()))
	if d = m.untilDone(ctx, d); d.State != "succeeded" {
		t.Errorf("the deployment after the restore is %s: %s", d.State, d.Message)
	}
	for _, one := range w.refused.list()[denied:] {
		t.Errorf("after the update, %s is denied %s on %s", one.Principal, one.Action, one.Resource)
	}
}

// opsRestore runs `fairlead ops restore` with an administrator's permissions. DynamoDB Local has no point-in-time recovery.
func (w *world) opsRestore(table string) {
	w.t.Helper()
	variables := map[string]string{}
	for name, v := range w.tmpl.Resources["ControlAPI"].Properties["Environment"].(map[string]any)["Variables"].(map[string]any) {
		variables[name] = w.text(v)
	}
	variables["FAIRLEAD_LOG_SUBSCRIBER"] = "arn:aws:kinesis:" + region + ":" + accountID + ":stream/" + w.logStream()
	lambda := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(map[string]any{"Environment": map[string]any{"Variables": variables}})
	}))
	defer lambda.Close()
	local, err := url.Parse(w.endpoints["DYNAMODB"])
	w.ok("read the address of the tables", err)
	next := httputil.NewSingleHostReverseProxy(local)
	tables := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".UpdateContinuousBackups") {
			rw.Header().Set("X-Amz-Crc32", "2745614147") // of {}
			_, _ = io.WriteString(rw, "{}")
			return
		}
		next.ServeHTTP(rw, r)
	}))
	defer tables.Close()
	cmd := w.command(w.t.Context(), "ops", "restore", "--table", table, "--stage", "test", "--region", region)
	cmd.Env = []string{"FAIRLEAD_CONFIG_DIR=" + w.config, "HOME=" + w.t.TempDir(), "PATH=" + os.Getenv("PATH"), "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true"}
	for service, endpoint := range w.endpoints {
		cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL_"+service+"="+endpoint)
	}
	cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL_LAMBDA="+lambda.URL, "AWS_ENDPOINT_URL_DYNAMODB="+tables.URL) // the last value counts
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("1 installs, 1 components marked as unknown, 1 deployments canceled")) {
		w.t.Fatalf("ops restore: %v\n%s", err, out)
	}
}
