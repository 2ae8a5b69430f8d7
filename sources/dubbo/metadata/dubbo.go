package metadata

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"

	"tributary/internal/intake"
	"tributary/sources/dubbo/provider"
)

// The head of a frame of the dubbo protocol: magic, flags, status, id, length.
const (
	headSize   = 16
	magic      = 0xdabb
	request    = 0xc2 // a request that wants an answer, in hessian2
	isRequest  = 0x80
	isEvent    = 0x20
	statusFine = 20
	requestID  = 1
)

// overDubbo calls getMetadataInfo by the dubbo protocol.
func overDubbo(ctx context.Context, address string, i provider.Instance) (metadata provider.Metadata, err error) {
	value, err := exchange(ctx, address, invocation(i.Application, "getMetadataInfo", "Ljava/lang/String;", i.Revision))
	if err != nil {
		return metadata, err
	}
	return infoOf(value)
}

// overOlderDubbo calls getExportedURLs, which only Java has.
func overOlderDubbo(ctx context.Context, address string, i provider.Instance) (metadata provider.Metadata, err error) {
	urls, err := exchange(ctx, address, invocation(i.Application, "getExportedURLs", ""))
	if err != nil {
		return metadata, err
	}
	return ofURLs(i, urls)
}

// infoOf reads a MetadataInfo. Java and Go write the same fields in different orders.
func infoOf(v any) (metadata provider.Metadata, err error) {
	info, ok := v.(map[string]any)
	if !ok {
		return metadata, provider.ErrNoMetadata
	}
	metadata.Application, metadata.Revision = textOf(info["app"]), textOf(info["revision"])
	services, _ := info["services"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(services)) {
		fields, _ := services[key].(map[string]any)
		service := provider.Service{
			Name: textOf(fields["name"]), Group: textOf(fields["group"]), Version: textOf(fields["version"]),
			Protocol: textOf(fields["protocol"]),
			Path:     textOf(fields["path"]), Params: map[string]string{},
		}
		service.Port, _ = fields["port"].(int)
		params, _ := fields["params"].(map[string]any)
		for k, v := range params {
			service.Params[k] = textOf(v)
		}
		if service.Name != "" && service.Protocol != "" {
			metadata.Services = append(metadata.Services, service)
		}
	}
	return metadata, nil
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

// exchange makes a call and returns the value of its answer.
func exchange(ctx context.Context, address string, frame []byte) (any, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(frame); err != nil {
		return nil, err
	}
	_, lease := intake.Begin(ctx)
	defer lease.Release()
	for {
		head := make([]byte, headSize)
		if _, err := io.ReadFull(conn, head); err != nil {
			return nil, orEnded(ctx, err)
		}
		size := binary.BigEndian.Uint32(head[12:])
		if binary.BigEndian.Uint16(head) != magic || size > maxAnswer {
			return nil, fmt.Errorf("not an answer of the dubbo protocol: %x", head)
		}
		lease.Release()       // of a heartbeat
		var body bytes.Buffer // grows with the bytes received, not with the announced size
		if _, err := io.CopyN(&body, lease.Reader(ctx, conn), int64(size)); err != nil {
			return nil, orEnded(ctx, err)
		}
		if err := lease.Take(ctx, decodedFactor*int(size)); err != nil {
			return nil, err
		}
		if head[2]&(isRequest|isEvent) != 0 || binary.BigEndian.Uint64(head[4:]) != requestID {
			continue // a heartbeat
		}
		if head[3] != statusFine {
			why := (&reader{rest: body.Bytes()}).string()
			return nil, fmt.Errorf("status %d: %s", head[3], provider.Shorten(why))
		}
		return answerOf(body.Bytes())
	}
}

// orEnded returns the error of ctx if it has ended, since that closes the connection.
func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// invocation returns the frame of a call to the metadata service of an application. types are those of the arguments.
func invocation(application, method, types string, arguments ...string) []byte {
	frame := make([]byte, headSize)
	binary.BigEndian.PutUint16(frame, magic)
	frame[2] = request
	binary.BigEndian.PutUint64(frame[4:], requestID)
	// protocol, service, its version, method
	for _, s := range append([]string{"2.0.2", service, "1.0.0", method, types}, arguments...) {
		frame = appendString(frame, s)
	}
	frame = appendMap(frame, [2]string{"path", service}, [2]string{"interface", service}, [2]string{"version", "1.0.0"},
		[2]string{"group", application})
	binary.BigEndian.PutUint32(frame[12:], uint32(len(frame)-headSize)) //nolint:gosec // it is short
	return frame
}

// The kinds of answers: exception, value or null; the second set has attachments at the end.
const (
	withException  = 0
	withNull       = 2
	withException2 = 3
	withNull2      = 5
)

// answerOf returns an answer's value.
func answerOf(body []byte) (any, error) {
	reader := &reader{rest: body}
	switch kind := reader.number(); {
	case reader.err != nil:
		return nil, reader.err
	case kind == withException || kind == withException2:
		return nil, errors.New("it throws an exception")
	case kind == withNull || kind == withNull2:
		return nil, nil
	}
	v := reader.value(0)
	return v, reader.err
}
