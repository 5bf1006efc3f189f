//! iNET-X packets and captures made by hand.

/// A packet with one option word.
pub(crate) fn inetx(stream_id: u32, sequence: u32, ptp: (u32, u32), payload: &[u8]) -> Vec<u8> {
    let length = 28 + payload.len() as u32;
    let mut bytes = Vec::with_capacity(length as usize);
    for word in [0x1100_0000, stream_id, sequence, length, ptp.0, ptp.1, 0] {
        bytes.extend_from_slice(&u32::to_be_bytes(word));
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// A UDP datagram in IPv4 to 235.0.0.1.
pub(crate) fn ipv4(port: u16, flags_and_offset: u16, payload: &[u8]) -> Vec<u8> {
    let udp = udp(port, payload);
    let mut ip = vec![0x45, 0];
    ip.extend_from_slice(&(20 + udp.len() as u16).to_be_bytes());
    ip.extend_from_slice(&[0, 1]);
    ip.extend_from_slice(&flags_and_offset.to_be_bytes());
    ip.extend_from_slice(&[64, 17, 0, 0, 10, 0, 0, 1, 235, 0, 0, 1]);
    ip.extend_from_slice(&udp);
    ip
}

/// A UDP datagram in IPv6 to ff02::1, behind a hop-by-hop header.
pub(crate) fn ipv6(port: u16, payload: &[u8]) -> Vec<u8> {
    let udp = udp(port, payload);
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend_from_slice(&(8 + udp.len() as u16).to_be_bytes());
    ip.extend_from_slice(&[0, 1]);
    ip.extend_from_slice(&[0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend_from_slice(&[0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    ip.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
    ip.extend_from_slice(&udp);
    ip
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut udp = 50_001_u16.to_be_bytes().to_vec();
    udp.extend_from_slice(&port.to_be_bytes());
    udp.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    udp.extend_from_slice(&[0, 0]);
    udp.extend_from_slice(payload);
    udp
}

/// An Ethernet frame of an IP packet, with VLAN tags.
pub(crate) fn ethernet(vlans: &[u16], ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    for tag in vlans {
        frame.extend_from_slice(&[0x81, 0]);
        frame.extend_from_slice(&tag.to_be_bytes());
    }
    frame.extend_from_slice(if ip[0] >> 4 == 4 { &[8, 0] } else { &[0x86, 0xDD] });
    frame.extend_from_slice(ip);
    frame
}

/// A pcap file: link type, and packets with seconds and fraction.
pub(crate) fn pcap(nanoseconds: bool, link: u32, packets: &[(u32, u32, Vec<u8>)]) -> Vec<u8> {
    let magic: u32 = if nanoseconds { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
    let mut file = magic.to_le_bytes().to_vec();
    file.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0]);
    file.extend_from_slice(&link.to_le_bytes());
    for (s, fraction, bytes) in packets {
        let n = bytes.len() as u32;
        for word in [*s, *fraction, n, n] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(bytes);
    }
    file
}

/// A pcapng file with one interface: time resolution, offset, packets with times in its units.
pub(crate) fn pcapng(big: bool, link: u16, tsresol: u8, tsoffset: i64, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let w16 = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let w32 = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let w64 = |v: i64| if big { v.to_be_bytes() } else { v.to_le_bytes() };
    let block = |kind: u32, body: Vec<u8>| {
        let length = 12 + body.len() as u32;
        [w32(kind).to_vec(), w32(length).to_vec(), body, w32(length).to_vec()].concat()
    };
    let section = [w32(0x1A2B_3C4D).to_vec(), w16(1).to_vec(), w16(0).to_vec(), w64(-1).to_vec()].concat();
    let interface = [
        w16(link).to_vec(),
        w16(0).to_vec(),
        w32(0).to_vec(),
        [w16(9), w16(1)].concat(),
        vec![tsresol, 0, 0, 0],
        [w16(14), w16(8)].concat(),
        w64(tsoffset).to_vec(),
        vec![0; 4],
    ]
    .concat();
    let mut file = block(0x0A0D_0D0A, section);
    file.extend(block(1, interface));
    for (t, bytes) in packets {
        let n = bytes.len() as u32;
        let mut body = [w32(0), w32((t >> 32) as u32), w32(*t as u32), w32(n), w32(n)].concat();
        body.extend_from_slice(bytes);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, body));
    }
    file
}
