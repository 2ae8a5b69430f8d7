package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"tributary/internal/address"
	"tributary/internal/intake"
	"tributary/internal/worker"
	"tributary/sources/nacos/wire"
)

// The intervals of a connection. A server pings clients that were silent for 20 s, and forgets clients without an
// answer.
const (
	openTimeout    = 10 * time.Second
	requestTimeout = 5 * time.Second
	pulse          = 5 * time.Second
	maxMissed      = 2
	unregistered   = 50 * time.Millisecond // pause before the next check whether the server knows the connection
)

// maxAnswer is the size of the largest answer: a service with some ten thousand instances.
const maxAnswer = 64 << 20

// conn is a connection to one server. After a failure it is replaced, since its subscriptions ended with it.
type conn struct {
	// read-only
	server  string
	address Address
	login   *login
	grpc    *grpc.ClientConn
	workers *worker.Group
	ctx     context.Context // ends with the connection, with the cause
	pushed  func(serviceInfo)

	maxAnswer int

	ip atomic.Pointer[string] // ours
}

// codec returns the JSON codec of one stream or call.
func (c *conn) codec(ctx context.Context) *intake.Codec {
	return intake.NewCodec(ctx, wire.Codec{}, c.maxAnswer, intake.TextBytes)
}

// connError is a failure of a connection, and not of a request.
type connError struct{ err error }

func (e *connError) Error() string { return e.err.Error() }
func (e *connError) Unwrap() error { return e.err }

// open connects to a server. It calls pushed for services that change; pushed must not block.
func (c *Client) open(ctx context.Context, server string, pushed func(serviceInfo)) (*conn, error) {
	target, err := c.address.grpc(server)
	if err != nil {
		return nil, err
	}
	secure := insecure.NewCredentials()
	if c.config != nil {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			return nil, err
		}
		tlsConfig, err := c.config(host)
		if err != nil {
			return nil, err
		}
		secure = credentials.NewTLS(tlsConfig)
	}
	conn := &conn{server: server, address: c.address, login: c.login, pushed: pushed, maxAnswer: c.maxAnswer}
	// A server identifies a client by its connection.
	conn.grpc, err = grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(secure),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			socket, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err == nil {
				ip, _, _ := net.SplitHostPort(socket.LocalAddr().String())
				conn.ip.Store(&ip)
			}
			return socket, err
		}),
		intake.DialOption(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.maxAnswer)))
	if err != nil {
		return nil, err
	}
	conn.workers, conn.ctx = worker.New(ctx)
	if err := conn.start(); err != nil {
		conn.close()
		err = address.Hint(err, c.config != nil)
		return nil, fmt.Errorf("connect to %s (gRPC, %d above the port of %s; grpcOffset in the address if it is another "+
			"one): %w", target,
			c.address.GRPCOffset, server, err)
	}
	return conn, nil
}

func (c *conn) start() error {
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	if err := c.request(ctx, "ServerCheckRequest", serverCheck{}, &answer{}); err != nil {
		return err
	}
	if err := c.register(ctx); err != nil {
		return err
	}
	c.workers.Go(c.beat)
	return nil
}

// close ends the connection and its goroutines.
func (c *conn) close() {
	c.workers.Stop()
	_ = c.grpc.Close()
}

// register registers the client. The server does that in the background, so register asks until the server knows the
// client.
func (c *conn) register(ctx context.Context) error {
	codec := c.codec(c.ctx)
	stream, err := c.grpc.NewStream(c.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, wire.RequestStream,
		grpc.ForceCodecV2(codec))
	if err != nil {
		return err
	}
	setup, err := c.payload("ConnectionSetupRequest", connectionSetup{
		ClientVersion: "Nacos-Go-Client:v2.3.5", Tenant: c.address.Namespace,
		Labels: map[string]string{"source": "sdk", "module": "naming", "AppName": "tributary"},
	}, "")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(setup); err != nil {
		return err
	}
	c.workers.Go(func() { c.workers.Fail(c.receive(stream, codec)) })
	for {
		err := c.request(ctx, "HealthCheckRequest", healthCheck{}, &answer{})
		if !errors.Is(err, errUnregistered) {
			return err
		}
		if worker.Wait(ctx, nil, unregistered) != nil {
			return err
		}
	}
}

// beat sends heartbeats, and notices a server without an answer.
func (c *conn) beat() {
	missed := 0
	for worker.Wait(c.ctx, nil, pulse) == nil {
		err := c.request(c.ctx, "HealthCheckRequest", healthCheck{}, &answer{})
		if err == nil {
			missed = 0
			continue
		}
		if missed++; missed >= maxMissed {
			c.workers.Fail(fmt.Errorf("%s does not answer: %w", c.server, err))
			return
		}
	}
}

// receive answers the server's requests until the stream ends.
func (c *conn) receive(stream grpc.ClientStream, codec *intake.Codec) error {
	defer func() { codec.Lease().Release() }()
	for {
		codec.Lease().Release() // of the last message
		var payload wire.Payload
		if err := stream.RecvMsg(&payload); err != nil {
			return fmt.Errorf("the connection to %s ended: %w", c.server, err)
		}
		reply := ""
		switch payload.Kind {
		case "NotifySubscriberRequest":
			var n push
			// The server would repeat an unreadable push for ever; the next slow read has it.
			if json.Unmarshal(payload.Body, &n) == nil {
				c.pushed(n.Service)
			}
			reply = "NotifySubscriberResponse"
		case "ClientDetectionRequest":
			reply = "ClientDetectionResponse"
		case "SetupAckRequest":
			reply = "SetupAckResponse"
		case "ConnectResetRequest":
			return fmt.Errorf("%s sends its clients to another server", c.server)
		default:
			continue
		}
		var id struct {
			RequestID string `json:"requestId"`
		}
		_ = json.Unmarshal(payload.Body, &id) // without an ID, the answer has no effect
		back, err := c.payload(reply, answer{ResultCode: codeOK, RequestID: id.RequestID}, "")
		if err != nil {
			return err
		}
		if err := stream.SendMsg(back); err != nil {
			return fmt.Errorf("answer %s: %w", c.server, err)
		}
	}
}

func (c *conn) payload(kind string, body any, token string) (*wire.Payload, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	payload := &wire.Payload{Kind: kind, Body: text}
	if ip := c.ip.Load(); ip != nil {
		payload.ClientIP = *ip
	}
	if token != "" {
		payload.Headers = map[string]string{"accessToken": token}
	}
	return payload, nil
}

// request sends a request to the server. An error of the connection is a *connError.
func (c *conn) request(ctx context.Context, kind string, body any, into interface{ err() error }) error {
	pass, err := c.login.get(ctx, c.server)
	if err != nil {
		return err
	}
	err = c.ask(ctx, kind, body, into, pass.token)
	if errors.Is(err, ErrDenied) && pass.token != "" { // the token may be invalid early, as when the server's key changed
		c.login.forget()
		if pass, err = c.login.get(ctx, c.server); err == nil {
			err = c.ask(ctx, kind, body, into, pass.token)
		}
	}
	return pass.explain(err)
}

func (c *conn) ask(ctx context.Context, kind string, body any, into interface{ err() error }, token string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	payload, err := c.payload(kind, body, token)
	if err != nil {
		return err
	}
	codec := c.codec(ctx)
	defer func() { codec.Lease().Release() }()
	var back wire.Payload
	if err := c.grpc.Invoke(ctx, wire.Request, payload, &back, grpc.ForceCodecV2(codec)); err != nil {
		return c.explain(kind, err)
	}
	if err := json.Unmarshal(back.Body, into); err != nil {
		return fmt.Errorf("the answer to %s: %w", kind, err)
	}
	return into.err()
}

// errTooLarge says that an answer exceeds maxAnswer.
var errTooLarge = errors.New("the answer is too large")

// explain returns the meaning of an error of gRPC. An error of one request is none of the connection, which the
// heartbeats check.
func (c *conn) explain(kind string, err error) error {
	message := status.Convert(err).Message()
	switch code := status.Code(err); {
	case c.ctx.Err() != nil || code == codes.Unavailable || code == codes.Canceled:
		return &connError{errors.New(message)}
	case code == codes.DeadlineExceeded:
		return fmt.Errorf("%s: no answer in %s", kind, requestTimeout)
	case code == codes.ResourceExhausted:
		return fmt.Errorf("%s: %w: %s", kind, errTooLarge, message)
	}
	return fmt.Errorf("%s: %s", kind, message)
}

// subscribe returns the instances of a service, and starts or ends pushes of its changes.
func (c *conn) subscribe(ctx context.Context, group, service string, on bool) (serviceInfo, error) {
	var answer subscribeAnswer
	if err := c.request(ctx, "SubscribeServiceRequest", subscribe{c.address.NamespaceName(), group, service, "", on},
		&answer); err != nil {
		return serviceInfo{}, fmt.Errorf("service %s of group %s: %w", service, group, err)
	}
	return answer.Service, nil
}

// config returns a text of configuration, or ErrAbsent.
func (c *conn) config(ctx context.Context, dataID, group string) (string, error) {
	var answer configAnswer
	if err := c.request(ctx, "ConfigQueryRequest", configQuery{dataID, group, c.address.Namespace}, &answer); err != nil {
		return "", fmt.Errorf("configuration %s of group %s: %w", dataID, group, err)
	}
	return answer.Content, nil
}
