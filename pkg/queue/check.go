package queue

import (
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// namePattern is compiled at first use, so that not each job's process pays for it.
var namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`) })

// CheckName returns an error if name cannot name a queue: a name is 1 to 80 letters, digits, hyphens and underscores,
// SQS's rule. The error is of KindInvalid.
func CheckName(name string) error {
	if namePattern().MatchString(name) {
		return nil
	}
	return fairlead.Invalid(fairlead.CodeInvalidQueueName, "%.100q does not name a queue: 1 to 80 letters, digits, hyphens and underscores do", name)
}

// CheckSend returns the error of Send for invalid arguments, so that every driver refuses the same: KindTooLarge for a
// body over MaxBody, KindInvalid for an empty body, a bad name or a delay outside 0 to MaxDelay.
func CheckSend(name string, body []byte, delay time.Duration) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(body) == 0 {
		return fairlead.Invalid(fairlead.CodeInvalidMessage, "a message needs a body")
	}
	if len(body) > MaxBody {
		return &fairlead.Error{
			Kind: fairlead.KindTooLarge, Code: fairlead.CodeMessageTooLarge,
			Message: fmt.Sprintf("a message of %d bytes is larger than the %d a queue takes", len(body), MaxBody),
		}
	}
	return checkRange(fairlead.CodeInvalidDelay, "delay", delay, MaxDelay)
}

// CheckReceive returns the error of Receive for invalid arguments, of KindInvalid.
func CheckReceive(name string, hide, wait time.Duration) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := checkRange(fairlead.CodeInvalidWait, "wait", wait, MaxWait); err != nil {
		return err
	}
	return checkRange(fairlead.CodeInvalidHide, "hide", hide, MaxHide)
}

// CheckExtend returns the error of Extend for invalid arguments, of KindInvalid.
func CheckExtend(name string, hide time.Duration) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return checkRange(fairlead.CodeInvalidHide, "hide", hide, MaxHide)
}

// CheckDeadLetters returns the error of DeadLetters for invalid arguments, of KindInvalid.
func CheckDeadLetters(name string, limit int) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if limit < 1 {
		return fairlead.Invalid(fairlead.CodeInvalidLimit, "at most %d dead letters is not a number of messages", limit)
	}
	return nil
}

func checkRange(code fairlead.Code, what string, d, limit time.Duration) error {
	if d < 0 || d > limit {
		return fairlead.Invalid(code, "a %s of %s is not between 0 and %s", what, d, limit)
	}
	return nil
}
