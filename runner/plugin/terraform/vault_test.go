package terraform

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/installkey"
	"github.com/fairlead/fairlead/pkg/statefile"
	"github.com/fairlead/fairlead/runner/plugin"
)

const (
	testSeed   = "SeedOfTheTestsSeedOfTheTestsSeedOfTheTests0123"
	newerSeed  = "NewerSeedOfTheTestsNewerSeedOfTheTestsNewer012"
	clearState = `{"version":4,"terraform_version":"1.12.6","serial":7,"lineage":"ours","outputs":{"password":{"value":"hunter2","type":"string","sensitive":true}},"resources":[]}`
)

func keysOf(t testing.TB, seeds string) installkey.Ring {
	t.Helper()
	r, err := installkey.NewRing(seeds, "ins_1")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sealedState(t testing.TB, with statefile.Sealer) []byte {
	t.Helper()
	b, err := statefile.Seal(with, "web", []byte(clearState))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stateStore plays the control plane, which stores one state.
type stateStore struct {
	t       *testing.T
	mu      sync.Mutex
	state   []byte
	writes  int
	refuses bool // it refuses each new state
	asked   []string
}

func (s *stateStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	s.asked = append(s.asked, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/runner/v1/state/i/c"))
	switch {
	case strings.HasSuffix(r.URL.Path, "/lock"):
	case r.Method == http.MethodGet && s.state == nil:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		w.Write(s.state) //nolint:errcheck // the client may have closed the connection
	case r.Method == http.MethodPost && s.refuses:
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"type":"urn:fairlead:problem:stale-epoch","detail":"another attempt has the lease"}`) //nolint:errcheck // the client may have closed the connection
	case r.Method == http.MethodPost:
		if sum := md5.Sum(body); r.Header.Get("Content-MD5") != base64.StdEncoding.EncodeToString(sum[:]) {
			s.t.Errorf("the Content-MD5 is %q", r.Header.Get("Content-MD5"))
		}
		s.state, s.writes = body, s.writes+1
	}
}

func (s *stateStore) stored() ([]byte, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.writes
}

// The tool writes a state and reads it. The control plane sees serial and lineage, and neither the tool nor the control plane
// notices the other's form of the state.
func TestStateIsEncryptedOnItsWay(t *testing.T) {
	keys := keysOf(t, testSeed)
	store := &stateStore{t: t}
	env, log, j := relayedWith(t, store.ServeHTTP, keys, opApply)
	address, password := env["TF_HTTP_ADDRESS"], env["TF_HTTP_PASSWORD"]
	if !strings.HasPrefix(address, "http://127.0.0.1:") || password == "state" || password == "lease" {
		t.Errorf("the tool's environment is %v", env)
	}
	if status, body := ask(t, "GET", address, password, ""); status != http.StatusNoContent || body != "" {
		t.Errorf("without a state the tool gets %d %q", status, body)
	}
	if status, _ := ask(t, "POST", address+"?ID=lock-1", password, clearState); status != http.StatusOK {
		t.Errorf("the tool gets %d", status)
	}
	stored, _ := store.stored()
	if head, err := statefile.Read(stored); err != nil || head.Serial != 7 || head.Lineage != "ours" || head.Key != keys.Current().Public().ID() || bytes.Contains(stored, []byte("hunter2")) {
		t.Errorf("the control plane has %s: %+v, %v", stored, head, err)
	}
	if status, body := ask(t, "GET", address, password, ""); status != http.StatusOK || body != clearState {
		t.Errorf("the tool gets %d %q", status, body)
	}
	if b, err := j.state.readState(t.Context()); err != nil || string(b) != clearState {
		t.Errorf("the step reads %s, %v", b, err)
	}
	if status, _ := ask(t, "DELETE", address+"/lock", password, `{"ID":"lock-1"}`); status != http.StatusOK {
		t.Errorf("the tool gets %d", status)
	}
	if _, writes := store.stored(); writes != 1 || log.Len() > 0 {
		t.Errorf("%d writes, the log is %q", writes, log)
	}
}

// What a job does with each kind of stored state, and what is stored after the tool has released its lock without a write.
func TestStateOfAnotherOrigin(t *testing.T) {
	keys, both := keysOf(t, testSeed), keysOf(t, newerSeed+"\n"+testSeed)
	own, pushed := sealedState(t, keys), sealedState(t, keys.Current().Public())
	for name, c := range map[string]struct {
		keys       installkey.Ring
		stored     []byte
		operations string // those that read the state
		reason     fairlead.Reason
		encrypts   bool // the job encrypts the state again
		note       string
	}{
		"encrypted by a step":     {keys, own, "plan apply plan-destroy destroy migrate-state", "", false, ""},
		"pushed by a person":      {keys, pushed, "plan plan-destroy migrate-state", "encrypted-value-foreign", true, "No step of this customer made the stored state"},
		"in clear":                {keys, []byte(clearState), "plan plan-destroy migrate-state", "encrypted-value-foreign", true, "The stored state is not encrypted"},
		"of an earlier seed":      {both, own, "plan apply plan-destroy destroy migrate-state", "", true, "an earlier key of the install"},
		"of another seed":         {keysOf(t, newerSeed), own, "", "install-key-missing", false, "Add the earlier seed"},
		"damaged":                 {keys, bytes.Replace(own, []byte(`"serial":7`), []byte(`"serial":8`), 1), "", "encrypted-value-damaged", false, "damaged"},
		"of no known form":        {keys, []byte(`["no state"]`), "", "encrypted-value-damaged", false, "damaged"},
		"encrypted by its module": {keys, []byte(`{"meta":{},"encrypted_data":"eA==","serial":7,"lineage":"ours"}`), "plan plan-destroy migrate-state", "encrypted-value-foreign", true, "is not encrypted"},
	} {
		for _, operation := range []string{opPlan, opApply, opPlanDestroy, opDestroy, opMigrate} {
			t.Run(name+", "+operation, func(t *testing.T) {
				store := &stateStore{t: t, state: c.stored}
				env, log, j := relayedWith(t, store.ServeHTTP, c.keys, operation)
				address, password := env["TF_HTTP_ADDRESS"], env["TF_HTTP_PASSWORD"]
				status, body := ask(t, "GET", address, password, "")
				reads := strings.Contains(" "+c.operations+" ", " "+operation+" ")
				_, err := j.state.readState(t.Context())
				ask(t, "DELETE", address+"/lock", password, `{"ID":"lock-1"}`)
				stored, writes := store.stored()
				noted := !reads && c.operations != "" || strings.Contains(log.String(), c.note)
				if reads != (status == http.StatusOK) || reads != (err == nil) || !noted || strings.Contains(log.String(), "hunter2") {
					t.Fatalf("the tool gets %d, the step %v, the log %q", status, err, log)
				}
				if !reads {
					failure := j.failed(&toolError{command: operation, code: new(int), started: true}, fairlead.ReasonToolFailed)
					if status != http.StatusConflict || plugin.ReasonOf(err) != c.reason || plugin.ReasonOf(failure) != c.reason || strings.Contains(body, "hunter2") || writes > 0 {
						t.Errorf("the tool gets %d %q, the step %v, the job %v, and there are %d writes", status, body, err, failure, writes)
					}
					if operation == opApply && mayHaveChanged(&toolError{command: "apply", started: true}, failure) {
						t.Error("the apply may have changed something, although its tool got no state")
					}
					return
				}
				if strings.Count(log.String(), "\n") > 2 {
					t.Errorf("the log repeats itself: %q", log)
				}
				o, err := statefile.Open(c.keys, "web", stored)
				if err != nil || !o.Own || !o.Current || !bytes.Contains([]byte(body), o.State) || (writes == 1) != c.encrypts {
					t.Errorf("stored is %+v, %v after %d writes", o, err, writes)
				}
			})
		}
	}
}

// A job whose tool writes a state needs no second write.
func TestWrittenStateIsEncryptedOnce(t *testing.T) {
	store := &stateStore{t: t, state: []byte(clearState)}
	env, _, _ := relayedWith(t, store.ServeHTTP, keysOf(t, testSeed), opPlan)
	address, password := env["TF_HTTP_ADDRESS"], env["TF_HTTP_PASSWORD"]
	ask(t, "GET", address, password, "")
	ask(t, "POST", address, password, clearState)
	ask(t, "DELETE", address+"/lock", password, `{"ID":"lock-1"}`)
	if _, writes := store.stored(); writes != 1 {
		t.Errorf("%d writes", writes)
	}
}

// The lock is released also if the stored state cannot be encrypted. The next job encrypts it.
func TestFailedEncryptionReleasesTheLock(t *testing.T) {
	store := &stateStore{t: t, state: []byte(clearState), refuses: true}
	env, log, _ := relayedWith(t, store.ServeHTTP, keysOf(t, testSeed), opPlan)
	address, password := env["TF_HTTP_ADDRESS"], env["TF_HTTP_PASSWORD"]
	ask(t, "GET", address, password, "")
	if status, _ := ask(t, "DELETE", address+"/lock", password, `{"ID":"lock-1"}`); status != http.StatusOK {
		t.Errorf("the tool gets %d", status)
	}
	if got := fmt.Sprint(store.asked); got != "[GET  POST  DELETE /lock]" || !strings.Contains(log.String(), "could not be encrypted") {
		t.Errorf("the control plane gets %s, the log %q", got, log)
	}
}

// A state that was damaged between the tool and the step is not stored, as the control plane did not store it before.
func TestDamagedStateIsNotEncrypted(t *testing.T) {
	store := &stateStore{t: t}
	env, _, _ := relayedWith(t, store.ServeHTTP, keysOf(t, testSeed), opApply)
	r, err := http.NewRequestWithContext(t.Context(), "POST", env["TF_HTTP_ADDRESS"], strings.NewReader(clearState))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("job_1", env["TF_HTTP_PASSWORD"])
	r.Header.Set("Content-MD5", "AAAA")
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if _, writes := store.stored(); res.StatusCode != http.StatusUnprocessableEntity || writes != 0 {
		t.Errorf("the tool gets %d after %d writes", res.StatusCode, writes)
	}
}
