package metadata

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"tributary/sources/dubbo/provider"
)

// The head of a frame of the dubbo protocol: magic, flags, status, id, length.
const (
	headSize    = 16
	magic       = 0xdabb
	request     = 0xc2 // a request that wants an answer, in hessian2
	isRequest   = 0x80
	isEvent     = 0x20
	statusFine  = 20
	theirAnswer = 1 // the id of our request
)

// overDubbo calls getExportedURLs by the dubbo protocol.
func overDubbo(ctx context.Context, address string, i provider.Instance) (m provider.Metadata, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return m, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(getExportedURLs(i.Application)); err != nil {
		return m, err
	}
	for {
		head := make([]byte, headSize)
		if _, err := io.ReadFull(conn, head); err != nil {
			return m, orEnded(ctx, err)
		}
		size := binary.BigEndian.Uint32(head[12:])
		if binary.BigEndian.Uint16(head) != magic || size > maxAnswer {
			return m, fmt.Errorf("not an answer of the dubbo protocol: %x", head)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(conn, body); err != nil {
			return m, orEnded(ctx, err)
		}
		if head[2]&(isRequest|isEvent) != 0 || binary.BigEndian.Uint64(head[4:]) != theirAnswer {
			continue // a heartbeat
		}
		if head[3] != statusFine {
			why, _ := (&reader{body}).string()
			return m, fmt.Errorf("status %d: %s", head[3], provider.Shorten(why))
		}
		urls, err := answerOf(body)
		if err != nil {
			return m, err
		}
		return ofURLs(i, urls)
	}
}

// orEnded says that it took too long, rather than that the connection was closed because of that.
func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// getExportedURLs returns the frame of the call, for the metadata service of an application.
func getExportedURLs(application string) []byte {
	frame := make([]byte, headSize)
	binary.BigEndian.PutUint16(frame, magic)
	frame[2] = request
	binary.BigEndian.PutUint64(frame[4:], theirAnswer)
	for _, s := range []string{"2.0.2", service, "1.0.0", "getExportedURLs", ""} { // protocol, service, its version, method, types of arguments
		frame = appendString(frame, s)
	}
	frame = appendMap(frame, [2]string{"path", service}, [2]string{"interface", service}, [2]string{"version", "1.0.0"}, [2]string{"group", application})
	binary.BigEndian.PutUint32(frame[12:], uint32(len(frame)-headSize)) //nolint:gosec // it is short
	return frame
}

// The kinds of answers: with an exception, a value or nothing, and the same with attachments, which come last.
const (
	withException  = 0
	withValue      = 1
	withException2 = 3
	withValue2     = 4
)

// answerOf reads the list of strings that an answer is.
func answerOf(body []byte) ([]string, error) {
	r := &reader{body}
	kind, err := r.int()
	switch {
	case err != nil:
		return nil, err
	case kind == withException || kind == withException2:
		return nil, fmt.Errorf("it throws an exception")
	case kind != withValue && kind != withValue2:
		return nil, nil
	}
	return r.strings()
}
