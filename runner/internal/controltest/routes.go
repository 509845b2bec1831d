package controltest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/events"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

func (s *Server) routes(mux *http.ServeMux) {
	on := func(r wire.Route, h http.HandlerFunc) { mux.HandleFunc(r.Method+" "+r.Path, h) }
	on(wire.EnrolRunner, s.enrol)
	on(wire.CreateChallenge, s.challenge)
	on(wire.CreateSession, s.session)
	on(wire.HeartbeatSession, s.beat)
	on(wire.ClaimJob, s.claim)
	on(wire.ReleaseJob, s.release)
	on(wire.RescueJobLog, s.rescueLog)
	on(wire.ReportDied, s.died)
	on(wire.StartJob, s.start)
	on(wire.HeartbeatJob, s.leased(s.renew))
	on(wire.AppendJobLog, s.leased(s.appendLog))
	on(wire.GetPullLogin, s.leased(func(w http.ResponseWriter, _ *http.Request, _ *Job, _ []byte) {
		refuse(w, 404, "no-pull-login", "the lease token is the login", nil)
	}))
	on(wire.RenewLogAccess, s.leased(s.renewLogAccess))
	on(wire.FinishJob, s.finish)
	on(wire.PutPlan, s.leased(s.putPlan))
	on(wire.GetPlan, s.leased(s.getPlan))
	on(wire.GetState, s.stateful(s.getState))
	on(wire.PutState, s.stateful(s.putState))
	on(wire.DeleteState, s.stateful(s.deleteState))
	on(wire.LockState, s.stateful(s.lockState))
	on(wire.UnlockStateJob, s.stateful(s.unlockState))
}

func (s *Server) enrol(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.EnrolRequest](w, r)
	if !ok {
		return
	}
	s.change(func() {
		key := hex.EncodeToString(in.PublicKey)
		used, known := s.enrolment[in.Token]
		if !known || used != "" && used != key || len(in.PublicKey) != ed25519.PublicKeySize {
			refuse(w, 401, "enrolment-token", "the enrolment token is not valid, or was used", nil)
			return
		}
		if used == "" {
			s.seen++
			s.enrolment[in.Token] = key
			s.runners[fmt.Sprintf("run_%d", s.seen)] = in.PublicKey
		}
		for id, k := range s.runners {
			if bytes.Equal(k, in.PublicKey) {
				answer(w, wire.Enrolled{Runner: "here", RunnerID: id, Registry: s.Registry(), Keys: []wire.VerificationKey{
					{ID: events.KeyID(s.Signer.Public()), PublicKey: s.Signer.Public()}}})
			}
		}
	})
}

func (s *Server) challenge(w http.ResponseWriter, _ *http.Request) {
	s.change(func() {
		n := random()
		s.challenges[n] = true
		answer(w, wire.Challenge{Nonce: n})
	})
}

func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.SessionRequest](w, r)
	if !ok {
		return
	}
	s.change(func() {
		key := s.runners[in.RunnerID]
		if !s.challenges[in.Nonce] || key == nil || !ed25519.Verify(key, wire.SessionStatement(in.Nonce, in.RunnerID, in.Instance), in.Signature) {
			refuse(w, 401, "session-proof", "the proof of identity does not hold", nil)
			return
		}
		delete(s.challenges, in.Nonce)
		tok := "fls_" + random()
		s.sessions[tok] = true
		answer(w, wire.Session{ID: "ses_" + random(), Token: tok, ExpiresAt: s.now().Add(time.Hour), Registry: s.Registry(), Queue: s.opt.Queue, Configuration: s.configured})
	})
}

// inSession reports whether the caller has a session; the lock is held.
func (s *Server) inSession(w http.ResponseWriter, r *http.Request) bool {
	if s.sessions[bearer(r)] {
		return true
	}
	refuse(w, 401, "session-expired", "the session has expired", nil)
	return false
}

func (s *Server) beat(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.SessionHeartbeat](w, r)
	if !ok {
		return
	}
	s.change(func() {
		if s.inSession(w, r) {
			s.Beats = append(s.Beats, in)
			s.draining[bearer(r)] = in.Draining
			out := wire.SessionStatus{HeartbeatSeconds: s.opt.Heartbeat}
			if s.configured != nil && s.configured.Revision != in.Configuration {
				out.Configuration = s.configured
			}
			answer(w, out)
		}
	})
}

func (s *Server) claim(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.ClaimRequest](w, r)
	if !ok {
		return
	}
	s.waitFor(r.Context(), time.Duration(in.WaitSeconds)*time.Second, func() bool { // by name there is no wait
		return len(s.queue) > 0 || !s.sessions[bearer(r)]
	})
	s.change(func() {
		if r.Context().Err() != nil || !s.inSession(w, r) {
			return
		}
		if len(s.queue) == 0 || s.draining[bearer(r)] {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		at := 0
		if in.Job != "" {
			at = slices.IndexFunc(s.queue, func(j *Job) bool { return j.ID == in.Job })
		}
		if at < 0 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.claims++
		j := s.queue[at]
		s.queue = slices.Delete(s.queue, at, at+1)
		j.ByName = in.Job != ""
		j.Epoch++
		j.Claimed, j.fenced, j.launch, j.lease = true, false, "fll_"+random(), ""
		j.expires = s.now().Add(s.opt.LeaseTTL)
		sp := j.Spec
		planJob := ""
		if sp.Plan != nil {
			planJob = string(sp.Plan.Job)
		}
		answer(w, wire.Claim{Job: j.ID, Epoch: j.Epoch, Operation: sp.Operation, Plugin: sp.Plugin, Install: sp.InstallName,
			InstallID: string(sp.Install), Component: sp.Component, PlanJob: planJob, LaunchToken: j.launch, StartBefore: s.now().Add(20 * time.Second), GraceSeconds: int(sp.Grace)})
	})
}

// current returns the job if the epoch is its own; the lock is held.
func (s *Server) current(w http.ResponseWriter, r *http.Request, epoch int64) *Job {
	j := s.jobs[r.PathValue("job")]
	if j == nil {
		refuse(w, 404, "job-not-found", "there is no such job", nil)
		return nil
	}
	if j.Epoch != epoch || j.Finish != nil {
		refuse(w, 409, "stale-epoch", "the job belongs to another attempt", nil)
		return nil
	}
	return j
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.ReleaseRequest](w, r)
	if !ok {
		return
	}
	s.change(func() {
		if !s.inSession(w, r) {
			return
		}
		if j := s.current(w, r, in.Epoch); j != nil {
			j.Released++
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

func (s *Server) died(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.DiedRequest](w, r)
	if !ok {
		return
	}
	if s.opt.Death != nil {
		s.opt.Death(r.PathValue("job"))
	}
	s.change(func() {
		if !s.inSession(w, r) {
			return
		}
		if j := s.current(w, r, in.Epoch); j != nil {
			j.Died = &in
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

func (s *Server) rescueLog(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 2<<20))
	epoch, perr := strconv.ParseInt(r.URL.Query().Get("epoch"), 10, 64)
	if err != nil || perr != nil {
		refuse(w, 400, "invalid-request", "body or epoch", nil)
		return
	}
	s.change(func() {
		if !s.inSession(w, r) {
			return
		}
		if j := s.current(w, r, epoch); j != nil {
			s.appendLog(w, r, j, body)
		}
	})
}

func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.StartRequest](w, r)
	if !ok {
		return
	}
	s.change(func() {
		j := s.jobs[r.PathValue("job")]
		if j == nil || j.launch != bearer(r) || j.StepID != "" && j.StepID != in.StepID {
			refuse(w, 401, "launch-token", "the launch token is not valid, or was used", nil)
			return
		}
		j.StepID = in.StepID
		if j.lease == "" {
			j.lease = "flj_" + random()
			j.Started = s.now()
		}
		j.expires = s.now().Add(s.opt.LeaseTTL)
		sp := j.Spec
		sp.Job, sp.Epoch = orElse(sp.Job, fairlead.JobID(j.ID)), max(sp.Epoch, 0)
		if sp.Epoch == 0 {
			sp.Epoch = j.Epoch
		}
		sp.Runner = orElse(sp.Runner, RunnerID)
		if sp.IssuedAt.IsZero() {
			sp.IssuedAt = s.now()
		}
		if sp.ExpiresAt.IsZero() {
			sp.ExpiresAt = s.now().Add(time.Minute)
		}
		env, err := s.Signer.Sign(context.Background(), sp)
		if err != nil {
			refuse(w, 500, "internal", err.Error(), nil)
			return
		}
		if s.tamper != nil {
			env = s.tamper(sp, env)
		}
		started := wire.Started{Envelope: env, LeaseToken: j.lease, RenewSeconds: s.opt.Renew}
		if s.opt.Log != nil {
			started.Log = s.opt.Log(j.ID, j.Epoch)
		}
		answer(w, started)
	})
}

func orElse[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}

// leased lets a handler see the job whose lease token the caller has, with
// the lock held.
func (s *Server) leased(h func(http.ResponseWriter, *http.Request, *Job, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			return
		}
		if r.Pattern == wire.HeartbeatJob.Method+" "+wire.HeartbeatJob.Path {
			var in wire.JobHeartbeat
			if err := json.Unmarshal(body, &in); err != nil {
				refuse(w, 400, "invalid-body", err.Error(), nil)
				return
			}
			s.change(func() { // it is renewed when it is asked, not when it is answered
				if j := s.jobs[r.PathValue("job")]; j != nil && j.lease == bearer(r) {
					j.expires = s.now().Add(s.opt.LeaseTTL)
				}
			})
			epoch := s.Job(r.PathValue("job")).Epoch
			s.waitFor(r.Context(), time.Duration(in.WaitSeconds)*time.Second, func() bool {
				j := s.jobs[r.PathValue("job")]
				return j.Canceled || j.Epoch != epoch || j.Finish != nil
			})
		}
		s.change(func() {
			j := s.jobs[r.PathValue("job")]
			if j == nil || j.lease == "" || j.lease != bearer(r) {
				refuse(w, 401, "lease-token", "the lease token is not valid", nil)
				return
			}
			if !s.live(w, j) {
				return
			}
			h(w, r, j, body)
		})
	}
}

// live reports whether the job's lease is the one that was started with.
func (s *Server) live(w http.ResponseWriter, j *Job) bool {
	if j.Finish != nil || j.Died != nil || j.startedEpoch() != j.Epoch {
		refuse(w, 409, "stale-epoch", "the job belongs to another attempt", nil)
		return false
	}
	return true
}

// startedEpoch is the epoch whose launch token was handed out last: claim sets
// both, Fence raises Epoch alone.
func (j *Job) startedEpoch() int64 {
	if j.fenced {
		return j.Epoch - 1
	}
	return j.Epoch
}

func (s *Server) renew(w http.ResponseWriter, _ *http.Request, j *Job, _ []byte) {
	j.Renewals++
	l := wire.Lease{Cancel: j.Canceled, ExpiresAt: s.now().Add(s.opt.LeaseTTL), RenewSeconds: s.opt.Renew}
	if j.Canceled {
		l.CancelReason = "somebody canceled it"
	}
	answer(w, l)
}

func (s *Server) appendLog(w http.ResponseWriter, r *http.Request, j *Job, body []byte) {
	at, err := strconv.Atoi(r.URL.Query().Get("offset"))
	if err != nil || at < 0 || len(body) > 1<<20 {
		refuse(w, 400, "invalid-offset", "offset or size", nil)
		return
	}
	if at > len(j.Log) {
		refuse(w, 409, "log-offset", "the log continues elsewhere", map[string]string{"want": strconv.Itoa(len(j.Log))})
		return
	}
	j.Appends++
	overlap := min(len(j.Log)-at, len(body))
	if !bytes.Equal(j.Log[at:at+overlap], body[:overlap]) {
		refuse(w, 409, "log-diverged", "other bytes are stored", nil)
		return
	}
	j.Log = append(j.Log, body[overlap:]...)
	if j.appendErr > 0 {
		j.appendErr--
		hang(w)
		return
	}
	answer(w, wire.LogAppended{Next: int64(at + len(body))})
}

func (s *Server) finish(w http.ResponseWriter, r *http.Request) {
	in, ok := read[wire.FinishRequest](w, r)
	if !ok {
		return
	}
	s.change(func() {
		j := s.jobs[r.PathValue("job")]
		if j == nil || j.lease == "" || j.lease != bearer(r) {
			refuse(w, 401, "lease-token", "the lease token is not valid", nil)
			return
		}
		if j.Finish != nil && j.startedEpoch() == j.Epoch {
			j.Finishes++
			s.answerFinish(w)
			return
		}
		if !s.live(w, j) {
			return
		}
		if s.opt.Index != nil {
			if got := s.opt.Index(j.ID, j.Epoch); len(got) > len(j.Log) {
				j.Log = got
			}
			if in.Log.Size > int64(len(j.Log)) {
				refuse(w, 409, "log-offset", "the log continues elsewhere", map[string]string{"want": strconv.Itoa(len(j.Log))})
				return
			}
		}
		if in.Log.Size != int64(len(j.Log)) || in.Log.CRC32 != crc32.ChecksumIEEE(j.Log) {
			s.t.Errorf("job %s: the log is %d bytes with %d, the report says %+v", j.ID, len(j.Log), crc32.ChecksumIEEE(j.Log), in.Log)
		}
		j.Finish = &in
		j.Finishes++
		s.answerFinish(w)
	})
}

// answerFinish answers an accepted report, unless its answer is to be lost.
func (s *Server) answerFinish(w http.ResponseWriter) {
	if s.loseFinish > 0 {
		s.loseFinish--
		hang(w)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) renewLogAccess(w http.ResponseWriter, _ *http.Request, j *Job, _ []byte) {
	if s.opt.Log == nil {
		refuse(w, 404, "no-log-access", "there is no other way", nil)
		return
	}
	j.LogRenewals++
	w.WriteHeader(http.StatusCreated)
	answer(w, s.opt.Log(j.ID, j.Epoch))
}

func (s *Server) putPlan(w http.ResponseWriter, _ *http.Request, j *Job, body []byte) {
	j.Plan = body
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) getPlan(w http.ResponseWriter, _ *http.Request, j *Job, _ []byte) {
	if j.Spec.Plan == nil || s.jobs[string(j.Spec.Plan.Job)] == nil || s.jobs[string(j.Spec.Plan.Job)].Plan == nil {
		refuse(w, 404, "plan-not-found", "there is no such plan", nil)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(s.jobs[string(j.Spec.Plan.Job)].Plan)
}

// stateful authenticates as Terraform's http backend does: the job's name and
// its lease token as user and password.
func (s *Server) stateful(h func(http.ResponseWriter, *http.Request, string, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
		if err != nil {
			return
		}
		s.change(func() {
			user, pass, ok := r.BasicAuth()
			if !ok {
				user, pass = "", bearer(r)
				for id, j := range s.jobs {
					if j.lease == pass && pass != "" {
						user = id
					}
				}
			}
			j := s.jobs[user]
			if j == nil || j.lease == "" || j.lease != pass {
				refuse(w, 401, "lease-token", "the lease token is not valid", nil)
				return
			}
			if j.startedEpoch() != j.Epoch {
				refuse(w, 409, "stale-epoch", "the job belongs to another attempt", nil)
				return
			}
			h(w, r, r.PathValue("install")+"/"+r.PathValue("component"), body)
		})
	}
}

func (s *Server) getState(w http.ResponseWriter, _ *http.Request, key string, _ []byte) {
	st, ok := s.state[key]
	if !ok {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(st)
}

func (s *Server) putState(w http.ResponseWriter, _ *http.Request, key string, body []byte) {
	if s.noState {
		refuse(w, 403, "state-refused", "this state cannot be written", nil)
		return
	}
	s.state[key] = body
}

func (s *Server) deleteState(_ http.ResponseWriter, _ *http.Request, key string, _ []byte) {
	delete(s.state, key)
}

func (s *Server) lockState(w http.ResponseWriter, _ *http.Request, key string, body []byte) {
	if held, ok := s.locks[key]; ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusLocked)
		w.Write(held)
		return
	}
	s.locks[key] = body
}

func (s *Server) unlockState(_ http.ResponseWriter, _ *http.Request, key string, _ []byte) {
	delete(s.locks, key)
}
