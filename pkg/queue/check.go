package queue

import (
	"fmt"
	"time"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/pattern"
)

// namePattern is compiled on first use, so that a process that uses no queue does not pay
// for it.
var namePattern = pattern.New(`^[A-Za-z0-9_-]{1,80}$`)

// CheckName returns an error of KindInvalid if no queue can have the name. A name is 1 to
// 80 letters, digits, hyphens and underscores, which is the rule of SQS.
func CheckName(name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	return fairlead.Invalid(fairlead.CodeInvalidQueueName, "%.100q is not a queue name: use 1 to 80 letters, digits, hyphens and underscores", name)
}

// CheckSend returns the error of Send for invalid arguments, so that every driver refuses the same arguments. The error
// is of KindTooLarge for a body over MaxBody. It is of KindInvalid for an empty body, an invalid name or a delay
// outside 0 to MaxDelay.
func CheckSend(name string, body []byte, delay time.Duration) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if len(body) == 0 {
		return fairlead.Invalid(fairlead.CodeInvalidMessage, "the message body is empty")
	}
	if len(body) > MaxBody {
		return &fairlead.Error{
			Kind: fairlead.KindTooLarge, Code: fairlead.CodeMessageTooLarge,
			Message: fmt.Sprintf("the message has %d bytes: at most %d are allowed", len(body), MaxBody),
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
		return fairlead.Invalid(fairlead.CodeInvalidLimit, "limit of %d dead letters: at least 1 is required", limit)
	}
	return nil
}

func checkRange(code fairlead.Code, what string, d, limit time.Duration) error {
	if d < 0 || d > limit {
		return fairlead.Invalid(code, "%s of %s is not between 0 and %s", what, d, limit)
	}
	return nil
}
