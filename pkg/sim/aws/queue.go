package aws

import (
	"context"
	"crypto/md5" //nolint:gosec // SQS sums bodies with MD5 and the SDK checks it
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

const (
	// maxMessages bounds the queue where nobody reads it; the oldest are lost first.
	maxMessages = 10000
	// maxReceive is SQS's limit for one answer.
	maxReceive = 10
)

// message is one message of the interruption queue.
type message struct {
	ID       string    `json:"id"`
	Body     string    `json:"body"`
	SentAt   time.Time `json:"sentAt"`
	HiddenTo time.Time `json:"hiddenTo"`
	Receipt  string    `json:"receipt,omitempty"`
	Received int       `json:"received,omitempty"`
}

// event is an EventBridge event as a rule puts it into a queue.
type event struct {
	Version    string            `json:"version"`
	ID         string            `json:"id"`
	DetailType string            `json:"detail-type"`
	Source     string            `json:"source"`
	Account    string            `json:"account"`
	Time       string            `json:"time"`
	Region     string            `json:"region"`
	Resources  []string          `json:"resources"`
	Detail     map[string]string `json:"detail"`
}

func (s *Server) publishInterruption(i *Instance) {
	s.publish(i, "EC2 Spot Instance Interruption Warning", map[string]string{"instance-id": i.ID, "instance-action": "terminate"})
}

func (s *Server) publishState(i *Instance) {
	s.publish(i, "EC2 Instance State-change Notification", map[string]string{"instance-id": i.ID, "state": i.State})
}

func (s *Server) publish(i *Instance, kind string, detail map[string]string) {
	if s.opts.InterruptionQueue == "" {
		return
	}
	now := s.opts.Clock.Now()
	raw, err := json.Marshal(event{
		Version: "0", ID: s.id("event-"), DetailType: kind, Source: "aws.ec2", Account: s.opts.AccountID,
		Time: now.UTC().Format(time.RFC3339), Region: s.opts.Region, Detail: detail,
		Resources: []string{fmt.Sprintf("arn:aws:ec2:%s:%s:instance/%s", s.opts.Region, s.opts.AccountID, i.ID)},
	})
	if err != nil {
		panic(err) // strings always encode
	}
	s.enqueue(string(raw))
}

func (s *Server) enqueue(body string) *message {
	m := &message{ID: s.id("message-"), Body: body, SentAt: s.opts.Clock.Now()}
	s.st.Messages = append(s.st.Messages, m)
	if over := len(s.st.Messages) - maxMessages; over > 0 {
		s.st.Messages = slices.Delete(s.st.Messages, 0, over)
	}
	close(s.arrived)
	s.arrived = make(chan struct{})
	return m
}

func (s *Server) queueURL() string {
	return s.URL() + "/" + s.opts.AccountID + "/" + s.opts.InterruptionQueue
}

type queueRequest struct {
	QueueName           string `json:"QueueName"`
	QueueURL            string `json:"QueueUrl"`
	MaxNumberOfMessages int    `json:"MaxNumberOfMessages"`
	VisibilityTimeout   *int   `json:"VisibilityTimeout"`
	WaitTimeSeconds     int    `json:"WaitTimeSeconds"`
	ReceiptHandle       string `json:"ReceiptHandle"`
	MessageBody         string `json:"MessageBody"`
}

func (s *Server) queueRequest(body []byte) (queueRequest, error) {
	in := queueRequest{}
	if err := json.Unmarshal(body, &in); err != nil {
		return in, newError("SerializationException", "%s", err)
	}
	name := in.QueueName
	if name == "" && len(in.QueueURL) > len(s.opts.InterruptionQueue) {
		name = in.QueueURL[len(in.QueueURL)-len(s.opts.InterruptionQueue):]
	}
	if s.opts.InterruptionQueue == "" || name != s.opts.InterruptionQueue {
		return in, newError("QueueDoesNotExist", "The specified queue %q does not exist.", in.QueueName+in.QueueURL)
	}
	return in, nil
}

func (s *Server) getQueueURL(_ context.Context, body []byte) (any, error) {
	_, err := s.queueRequest(body)
	return map[string]string{"QueueUrl": s.queueURL()}, err
}

type messageJSON struct {
	MessageID     string            `json:"MessageId"`
	ReceiptHandle string            `json:"ReceiptHandle"`
	MD5OfBody     string            `json:"MD5OfBody"`
	Body          string            `json:"Body"`
	Attributes    map[string]string `json:"Attributes"`
}

// receiveMessage polls the queue for as long as the caller is ready to wait.
func (s *Server) receiveMessage(ctx context.Context, body []byte) (any, error) {
	in, err := s.queueRequest(body)
	if err != nil {
		return nil, err
	}
	deadline := s.opts.Clock.Now().Add(time.Duration(min(in.WaitTimeSeconds, 20)) * time.Second)
	for {
		out, arrived, visible, err := s.take(in)
		wait := deadline.Sub(s.opts.Clock.Now())
		if err != nil || len(out) > 0 || wait <= 0 || ctx.Err() != nil {
			return map[string]any{"Messages": out}, err
		}
		if visible > 0 {
			wait = min(wait, visible)
		}
		timer := s.opts.Clock.NewTimer(wait)
		select {
		case <-arrived:
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// take hands out visible messages. Where there are none it returns a channel that
// closes with the next one, and the time until a hidden one shows again.
func (s *Server) take(in queueRequest) (out []messageJSON, arrived chan struct{}, visible time.Duration, err error) {
	hide := 30 * time.Second
	if in.VisibilityTimeout != nil {
		hide = time.Duration(*in.VisibilityTimeout) * time.Second
	}
	limit := min(max(in.MaxNumberOfMessages, 1), maxReceive)
	err = s.update(func() error {
		now := s.opts.Clock.Now()
		arrived = s.arrived
		for _, m := range s.st.Messages {
			if m.HiddenTo.After(now) {
				if d := m.HiddenTo.Sub(now); visible == 0 || d < visible {
					visible = d
				}
				continue
			}
			if len(out) == limit {
				break
			}
			m.Received++
			m.HiddenTo, m.Receipt = now.Add(hide), fmt.Sprintf("%s#%d", m.ID, m.Received)
			out = append(out, messageJSON{MessageID: m.ID, ReceiptHandle: m.Receipt, MD5OfBody: sum(m.Body), Body: m.Body,
				Attributes: map[string]string{"SentTimestamp": strconv.FormatInt(m.SentAt.UnixMilli(), 10),
					"ApproximateReceiveCount": strconv.Itoa(m.Received)}})
		}
		return nil
	})
	return out, arrived, visible, err
}

func sum(body string) string {
	digest := md5.Sum([]byte(body)) //nolint:gosec // see the import
	return hex.EncodeToString(digest[:])
}

func (s *Server) deleteMessage(_ context.Context, body []byte) (any, error) {
	in, err := s.queueRequest(body)
	if err != nil {
		return nil, err
	}
	return map[string]any{}, s.update(func() error {
		s.st.Messages = slices.DeleteFunc(s.st.Messages, func(m *message) bool { return m.Receipt != "" && m.Receipt == in.ReceiptHandle })
		return nil
	})
}

func (s *Server) sendMessage(_ context.Context, body []byte) (any, error) {
	in, err := s.queueRequest(body)
	if err != nil {
		return nil, err
	}
	var m *message
	err = s.update(func() error {
		m = s.enqueue(in.MessageBody)
		return nil
	})
	return map[string]string{"MessageId": m.ID, "MD5OfMessageBody": sum(m.Body)}, err
}
